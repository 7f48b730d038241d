// The commands, and the menu of the status item.

import { execFile } from "node:child_process";
import * as vscode from "vscode";
import { install } from "./install";
import { CHOICES, parsePairs } from "./pairs";
import type { Provider } from "./provider";
import type { Server } from "./server";

const SCHEME = "specter-report";
const RUN_MS = 180_000;

export function registerCommands(server: Server, provider: Provider, log: vscode.LogOutputChannel): vscode.Disposable {
  const reports = new Reports();
  const command = (name: string, run: () => unknown) => vscode.commands.registerCommand(`specter.${name}`, run);
  const editor = (name: string) => () => vscode.commands.executeCommand(`editor.action.inlineSuggest.${name}`);
  return vscode.Disposable.from(
    reports,
    command("menu", menu),
    command("toggle", () => toggle(vscode.ConfigurationTarget.Global)),
    command("toggleHere", () => toggle(vscode.ConfigurationTarget.Workspace)),
    command("toggleLanguage", toggleLanguage),
    command("selectPair", () => selectPair(server)),
    command("showContext", () => showContext(server, reports)),
    command("showStats", () => showStats(server, reports)),
    command("showLog", () => log.show()),
    command("doctor", () => doctor(server, reports)),
    command("restart", () => server.restart()),
    command("install", async () => {
      await server.stop();
      await install(server.environment, log);
      await server.restart();
    }),
    command("walkthrough", () =>
      vscode.commands.executeCommand("workbench.action.openWalkthrough", "specter-ls.specter#start"),
    ),
    command("trigger", editor("trigger")),
    command("acceptWord", () => provider.acceptPart("editor.action.inlineSuggest.acceptNextWord")),
    command("acceptLine", () => provider.acceptPart("editor.action.inlineSuggest.acceptNextLine")),
    command("next", editor("showNext")),
    command("previous", editor("showPrevious")),
    command("dismiss", () => {
      provider.dismiss();
      return editor("hide")();
    }),
  );
}

async function menu(): Promise<void> {
  const enabled = settings().get<boolean>("enabled", true);
  const language = vscode.window.activeTextEditor?.document.languageId;
  const offHere = language !== undefined && languages()[language] === false;
  const entries: (vscode.QuickPickItem & { command: string })[] = [
    { label: enabled ? "$(circle-slash) Switch off" : "$(sparkle) Switch on", command: "specter.toggle" },
  ];
  if (vscode.workspace.workspaceFolders !== undefined) {
    entries.push({
      label: `$(root-folder) Switch ${enabled ? "off" : "on"} in this workspace`,
      command: "specter.toggleHere",
    });
  }
  if (language !== undefined) {
    entries.push({
      label: `$(symbol-misc) Switch ${offHere ? "on" : "off"} for ${language}`,
      command: "specter.toggleLanguage",
    });
  }
  entries.push(
    { label: "$(server-environment) Choose models…", command: "specter.selectPair" },
    { label: "$(eye) Show what is sent to the model", command: "specter.showContext" },
    { label: "$(graph) Show statistics", command: "specter.showStats" },
    { label: "$(output) Show log", command: "specter.showLog" },
    { label: "$(pulse) Check this installation (doctor)", command: "specter.doctor" },
    { label: "$(debug-restart) Restart the server", command: "specter.restart" },
    { label: "$(book) Get started", command: "specter.walkthrough" },
  );
  const entry = await vscode.window.showQuickPick(entries, { title: "Specter" });
  if (entry !== undefined) await vscode.commands.executeCommand(entry.command);
}

/** The user's own value; that of the workspace goes first, so where it stands in the way it is taken out. */
async function toggle(target: vscode.ConfigurationTarget): Promise<void> {
  const on = !settings().get<boolean>("enabled", true);
  await settings().update("enabled", on, target);
  if (settings().get<boolean>("enabled", true) !== on)
    await settings().update("enabled", undefined, vscode.ConfigurationTarget.Workspace);
}

async function toggleLanguage(): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId;
  if (language === undefined) return;
  const { [language]: on = true, ...others } = languages();
  const target =
    settings().inspect("languages")?.workspaceValue === undefined
      ? vscode.ConfigurationTarget.Global
      : vscode.ConfigurationTarget.Workspace;
  await settings().update("languages", on ? { ...others, [language]: false } : others, target);
}

async function selectPair(server: Server): Promise<void> {
  const pairs = await run(server, ["pairs", "--json"])
    .then(parsePairs)
    .catch((error: Error) => {
      vscode.window.showWarningMessage(`Specter: the list of pairs is not to be had (${error.message}).`);
      return [];
    });
  const current = settings().get("pair", "");
  const choices = [...CHOICES, ...pairs.map((pair) => ({ ...pair, label: pair.name }))];
  const entries = choices.map((choice) => ({
    label: choice.label,
    description: [choice.name === current ? "in use" : "", "here" in choice && choice.here ? "on this machine" : ""]
      .filter((word) => word !== "")
      .join(" · "),
    detail: choice.detail,
    name: choice.name,
  }));
  const entry = await vscode.window.showQuickPick(entries, { title: "Specter: models", matchOnDetail: true });
  if (entry === undefined) return;
  const workspace = settings().inspect("pair")?.workspaceValue !== undefined;
  const target = workspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await settings().update("pair", entry.name === "" ? undefined : entry.name, target);
}

async function showContext(server: Server, reports: Reports): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const client = server.running();
  if (editor === undefined || client === undefined) {
    vscode.window.showWarningMessage(
      `Specter: ${editor === undefined ? "open a file and put the cursor where you would type" : "the server is not running"}.`,
    );
    return;
  }
  const name = vscode.workspace.asRelativePath(editor.document.uri);
  try {
    const context = await client.context(editor.document, editor.selection.active);
    if (context.excluded) {
      vscode.window.showInformationMessage(
        `Specter: ${name} is excluded (specter.exclude, or it may hold secrets). Nothing of it is sent to the model.`,
      );
      return;
    }
    const files = context.snippets.map((snippet) => `  ${snippet.uri}: ${snippet.text.split("\n").length} lines`);
    const head = [
      `What a completion in ${name}`,
      "at the cursor sends to the model, and nothing else:",
      "",
      `${context.tokens} tokens`,
      `${context.prefix.length} characters before the cursor, ${context.suffix.length} after it`,
      `${files.length} passages from other files`,
      ...files,
      "-".repeat(60),
    ];
    await reports.show("What is sent", `${head.join("\n")}\n${context.prompt}`);
  } catch (error) {
    vscode.window.showWarningMessage(`Specter: ${error instanceof Error ? error.message : error}.`);
  }
}

async function showStats(server: Server, reports: Reports): Promise<void> {
  const client = server.running();
  if (client === undefined) vscode.window.showWarningMessage("Specter: the server is not running.");
  else await reports.show("Statistics.json", JSON.stringify(await client.stats(), undefined, 2));
}

async function doctor(server: Server, reports: Reports): Promise<void> {
  const options = { location: vscode.ProgressLocation.Notification, title: "Specter: checking this installation" };
  await vscode.window.withProgress(options, async () => {
    const report = await run(server, ["doctor"]).catch((error: Error) => error.message);
    const lines = [
      `VS Code ${vscode.version}, ${vscode.env.remoteName ?? "local"}, ${vscode.workspace.isTrusted ? "trusted workspace" : "restricted mode"}`,
      `Server in this window: ${server.report.state}${server.report.message ? ` (${server.report.message})` : ""}`,
      "",
      report,
    ];
    await reports.show("Doctor", lines.join("\n"));
  });
}

/** The output of a `specter` command. */
function run(server: Server, args: string[]): Promise<string> {
  const found = server.found();
  if (found.kind !== "found") return Promise.reject(new Error("the server is not installed"));
  const env = { ...process.env, NO_COLOR: "1", COLUMNS: "100" };
  return new Promise((resolve, reject) => {
    execFile(found.command, args, { timeout: RUN_MS, maxBuffer: 1 << 24, env }, (error, out, err) => {
      if (error !== null && out === "") reject(new Error(err.trim() || error.message));
      else resolve(out);
    });
  });
}

/** Texts to read, in read-only editors. */
class Reports implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly changes = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changes.event;
  private readonly registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);

  dispose(): void {
    this.registration.dispose();
    this.changes.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.path) ?? "";
  }

  async show(name: string, text: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `Specter: ${name}` });
    this.texts.set(uri.path, text);
    this.changes.fire(uri);
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(uri), { preview: true });
  }
}

function settings(): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration("specter");
}

function languages(): Record<string, boolean> {
  return settings().get<Record<string, boolean>>("languages", {});
}
