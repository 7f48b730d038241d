// Installs the server into an environment of its own, with progress and a way to stop.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import { inEnvironment, pythons } from "./find";
import { host } from "./server";

const LEAST_PYTHON = [3, 11] as const;
const PROBE = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1])";

/** True if there is a server in `environment` now. */
export function install(environment: string, log: vscode.LogOutputChannel): Thenable<boolean> {
  const options = { location: vscode.ProgressLocation.Notification, title: "Specter", cancellable: true };
  return vscode.window.withProgress(options, async (progress, token) => {
    const run = (command: string, args: string[]) =>
      runLogged(command, args, log, token, (line) => progress.report({ message: line }));
    try {
      progress.report({ message: "looking for Python" });
      const python = await findPython(run);
      if (python === undefined) {
        await complainOfPython();
        return false;
      }
      const wanted = await source();
      if (wanted === undefined) return false;
      progress.report({ message: "making an environment" });
      fs.mkdirSync(environment, { recursive: true });
      await run(python, ["-m", "venv", "--clear", environment]);
      progress.report({ message: `installing ${wanted}; this may take minutes` });
      const pip = [
        "-m",
        "pip",
        "install",
        "--upgrade",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
      ];
      await run(inEnvironment(environment, "python", host), [...pip, wanted]);
      if (!host.runnable(inEnvironment(environment, "specter", host)))
        throw new Error(`${wanted} brings no "specter" command`);
      return true;
    } catch (error) {
      fs.rmSync(environment, { recursive: true, force: true }); // half an environment is worse than none
      if (!token.isCancellationRequested) await complain(error instanceof Error ? error.message : String(error), log);
      return false;
    }
  });
}

/** What pip is to install: the setting, else the folder of a clone, which the user is asked for. */
async function source(): Promise<string | undefined> {
  const setting = vscode.workspace.getConfiguration("specter").get<string>("server.package", "").trim();
  if (setting !== "") return setting;
  const choose = "Choose Folder…";
  const message =
    "Specter's server is in no package registry. Choose the folder of a clone of Specter to install it from.";
  if ((await vscode.window.showInformationMessage(message, { modal: true }, choose)) !== choose) return undefined;
  const folders = await vscode.window.showOpenDialog({
    canSelectFiles: false,
    canSelectFolders: true,
    openLabel: "Install",
  });
  const folder = folders?.[0]?.fsPath;
  if (folder === undefined || fs.existsSync(path.join(folder, "lsp_server"))) return folder;
  await vscode.window.showErrorMessage(`${folder} is no clone of Specter: it has no folder lsp_server.`);
  return undefined;
}

type Run = (command: string, args: string[]) => Promise<string>;

async function findPython(run: Run): Promise<string | undefined> {
  const setting = vscode.workspace.getConfiguration("specter").get<string>("server.python", "").trim();
  for (const command of pythons(setting, host)) {
    const [major = 0, minor = 0] = await run(command, ["-c", PROBE]).then(
      (out) => out.trim().split(" ").map(Number),
      () => [],
    );
    if (major === LEAST_PYTHON[0] && minor >= LEAST_PYTHON[1]) return command;
  }
  return undefined;
}

async function complainOfPython(): Promise<void> {
  const [get, choose] = ["Get Python", "Choose Python…"];
  const message = `Specter needs Python ${LEAST_PYTHON.join(".")} or newer with the venv module, and found none. Install it, or tell where it is.`;
  const action = await vscode.window.showErrorMessage(message, get, choose);
  if (action === get) await vscode.env.openExternal(vscode.Uri.parse("https://www.python.org/downloads/"));
  if (action === choose) await vscode.commands.executeCommand("workbench.action.openSettings", "specter.server.python");
}

async function complain(message: string, log: vscode.LogOutputChannel): Promise<void> {
  const action = await vscode.window.showErrorMessage(
    `Specter's server could not be installed: ${message}`,
    "Show Log",
    "Try Again",
  );
  if (action === "Show Log") log.show();
  if (action === "Try Again") await vscode.commands.executeCommand("specter.install");
}

/** Runs a program to its end; its output goes to the log, and line by line to `said`. Rejects with its last line. */
function runLogged(
  command: string,
  args: string[],
  log: vscode.LogOutputChannel,
  token: vscode.CancellationToken,
  said: (line: string) => void,
): Promise<string> {
  log.info([command, ...args].join(" "));
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    const stop = token.onCancellationRequested(() => child.kill());
    let [out, last] = ["", ""];
    const hear = (data: Buffer) => {
      for (const line of data
        .toString()
        .split(/\r?\n/)
        .map((one) => one.trim())
        .filter((one) => one !== "")) {
        log.info(line);
        last = line;
        said(line.slice(0, 100));
      }
    };
    child.stdout.on("data", (data: Buffer) => {
      out += data.toString();
      hear(data);
    });
    child.stderr.on("data", hear);
    child.on("error", reject);
    child.on("close", (code) => {
      stop.dispose();
      if (token.isCancellationRequested) reject(new Error("stopped"));
      else if (code === 0) resolve(out);
      else reject(new Error(last || `${command} ended with code ${code}`));
    });
  });
}
