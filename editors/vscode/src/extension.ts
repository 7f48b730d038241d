// Joins the parts. The server does the work; this is where it meets the editor.

import * as vscode from "vscode";
import { registerCommands } from "./commands";
import { Provider } from "./provider";
import { environmentFolder, Server } from "./server";
import { StatusItem } from "./status";

const WELCOMED = "welcomed";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Specter", { log: true });
  const status = new StatusItem();
  const started = new Server(log, environmentFolder(context));
  server = started;
  const provider = new Provider(
    { ready: () => started.ready(), completed: (latency) => status.completed(latency), log },
    context.extension.id,
  );
  let able = false;
  context.subscriptions.push(
    log,
    status,
    started,
    provider,
    registerCommands(started, provider, log),
    started.onReport((report) => {
      status.show(report);
      const was = able;
      able = started.ready() !== undefined;
      if (able && !was) provider.retry();
      if (!able && was) provider.stop();
    }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (["server.path", "server.args"].some((key) => event.affectsConfiguration(`specter.${key}`))) started.restart();
      else if (event.affectsConfiguration("specter")) provider.stop();
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => started.restart()),
  );
  started.restart();
  welcome(context);
}

export function deactivate(): Promise<void> | undefined {
  return server?.stop();
}

/** The walkthrough, once, unless the user wants no page of any kind at the start. */
function welcome(context: vscode.ExtensionContext): void {
  const wanted = vscode.workspace.getConfiguration("workbench").get<string>("startupEditor") !== "none";
  if (!wanted || context.globalState.get(WELCOMED) !== undefined) return;
  context.globalState.update(WELCOMED, true);
  vscode.commands.executeCommand("specter.walkthrough");
}
