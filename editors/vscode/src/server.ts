// The server's life: found, started, started again when it dies, stopped. Says what is wrong once, with the way out.

import { type ChildProcess, spawn } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";
import { retryDelay } from "./backoff";
import { Client, type Status } from "./client";
import { atLeast, type Found, findServer, type Host } from "./find";
import type { Report } from "./present";

const LEAST_VERSION = "0.1.0";
const LINES_KEPT = 20; // of stderr, for the message when the server dies
const STOP_MS = 2000;

const INSTALL = "Install";
const CHOOSE = "Choose Command…";
const LOG = "Show Log";
const RESTART = "Try Again";

export const host: Host = {
  windows: process.platform === "win32",
  env: process.env,
  home: os.homedir(),
  runnable(file) {
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return fs.statSync(file).isFile();
    } catch {
      return false;
    }
  },
};

export class Server implements vscode.Disposable {
  readonly onReport: vscode.Event<Report>;
  report: Report = { state: "starting", message: "" };
  private readonly reports = new vscode.EventEmitter<Report>();
  private client: Client | undefined;
  private process: ChildProcess | undefined;
  private stderr: string[] = [];
  private deaths: number[] = [];
  private turn = 0; // counts starts and stops; what belongs to an earlier turn is over
  private retry: NodeJS.Timeout | undefined;
  private queue: Promise<void> = Promise.resolve();

  constructor(
    private readonly log: vscode.LogOutputChannel,
    readonly environment: string,
  ) {
    this.onReport = this.reports.event;
  }

  dispose(): void {
    clearTimeout(this.retry);
    this.reports.dispose();
  }

  /** The client if the server can complete now. */
  ready(): Client | undefined {
    return this.report.state === "ready" || this.report.state === "busy" ? this.running() : undefined;
  }

  /** The client if the server answers. */
  running(): Client | undefined {
    return this.client?.isRunning() ? this.client : undefined;
  }

  found(): Found {
    return findServer(settings().get<string>("server.path", "").trim(), this.environment, host);
  }

  /** Start, or start anew; resolves when that has worked or has failed. */
  restart(): Promise<void> {
    this.deaths = [];
    return this.start();
  }

  stop(): Promise<void> {
    this.turn++;
    this.interrupt();
    this.queue = this.queue.then(() => this.end());
    return this.queue;
  }

  private start(): Promise<void> {
    const turn = ++this.turn;
    this.interrupt();
    this.queue = this.queue.then(async () => {
      await this.end();
      if (turn === this.turn) await this.begin(turn);
    });
    return this.queue;
  }

  /** Do not wait for a server that is being started. */
  private interrupt(): void {
    clearTimeout(this.retry);
    if (this.client === undefined) this.kill(0);
  }

  private async begin(turn: number): Promise<void> {
    const found = this.found();
    if (found.kind === "missing") {
      this.tell({ state: "missing", message: "the server is not installed" });
      this.complain(
        `Specter's server is not installed${where()}. Install it into an environment of its own?`,
        [INSTALL, CHOOSE],
        "info",
      );
      return;
    }
    if (found.kind === "wrong-setting") {
      this.fail(`specter.server.path is "${found.setting}", and there is no such program${where()}.`, [CHOOSE]);
      return;
    }
    this.tell({ state: "starting", message: `starting ${found.command}` });
    this.log.info(`starting ${found.command} (${found.origin})`);
    const timeout = settings().get<number>("server.startTimeoutS", 30);
    const client = new Client(() => this.spawn(found.command), this.log, {
      status: (status) => turn === this.turn && this.heard(status),
      loaded: (percent) => turn === this.turn && this.loaded(percent),
      closed: () => turn === this.turn && this.client === client && void this.died(),
    });
    try {
      await within(timeout * 1000, client.start());
    } catch (error) {
      if (turn === this.turn) await this.startFailed(found.command, error);
      this.kill(0);
      return;
    }
    if (turn !== this.turn) {
      await this.close(client);
      return;
    }
    const known = client.isRunning() || client.version !== undefined;
    if (known && !atLeast(client.version ?? "", LEAST_VERSION)) {
      const is = client.version === undefined ? "is not Specter's server" : `is version ${client.version}`;
      await this.close(client);
      const ways = found.origin === "installed" ? [INSTALL, CHOOSE] : [CHOOSE];
      this.fail(`${found.command} ${is}; this extension needs Specter ${LEAST_VERSION} or newer.`, ways);
      return;
    }
    if (!client.isRunning()) {
      await this.died(); // between its answer and here
      return;
    }
    this.client = client;
    this.log.info(`${found.command} runs, version ${client.version}`);
    if (this.report.state === "starting") this.tell({ state: "loading", message: "" });
  }

  private spawn(command: string): Promise<ChildProcess> {
    const args = settings().get<string[]>("server.args", ["serve"]);
    // A folder of the workspace must not decide what Python imports: the server runs in the user's home.
    const child = spawn(command, args, { cwd: os.homedir(), stdio: "pipe", shell: /\.(cmd|bat)$/i.test(command) });
    this.process = child;
    this.stderr = [];
    child.stderr?.on("data", (data: Buffer) => {
      this.stderr = [...this.stderr, ...data.toString().split(/\r?\n/)]
        .filter((line) => line.trim() !== "")
        .slice(-LINES_KEPT);
    });
    child.stdin?.on("error", () => {}); // it died; `close` says so
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("spawn", () => resolve(child));
    });
  }

  private heard(status: Status): void {
    const percent = status.state === "loading" ? this.report.percent : undefined;
    this.tell({ ...status, percent });
    if (status.state === "ready") vscode.commands.executeCommand("setContext", "specter.ready", true);
  }

  private loaded(percent: number | undefined): void {
    if (this.report.state === "loading" || this.report.state === "starting")
      this.tell({ ...this.report, state: "loading", percent });
  }

  private async startFailed(command: string, error: unknown): Promise<void> {
    await lastBreath();
    const spawned = this.process?.pid !== undefined;
    const why = error instanceof LateError || !spawned ? (error as Error).message : this.lastWords();
    this.fail(`${command} ${spawned ? why : `cannot be run: ${why}`}.`, [RESTART, LOG, CHOOSE]);
  }

  /** It answered and is gone. */
  private async died(): Promise<void> {
    const turn = this.turn;
    this.client = undefined;
    this.deaths.push(Date.now());
    const delay = retryDelay(this.deaths, Date.now());
    const again = delay === undefined ? "" : `; starting it again in ${delay / 1000} s`;
    this.tell({ state: "starting", message: `the server stopped${again}` });
    await lastBreath();
    if (turn !== this.turn) return;
    const words = this.lastWords();
    this.kill(0); // it may have closed the connection and stayed
    this.log.error(`the server ${words}`);
    if (delay !== undefined) this.retry = setTimeout(() => this.start(), delay);
    else this.fail(`Specter's server stopped ${this.deaths.length} times; the last time it ${words}.`, [RESTART, LOG]);
  }

  private lastWords(): string {
    const { exitCode = null, signalCode = null } = this.process ?? {};
    const end = exitCode === null ? "closed the connection" : `stopped with exit code ${exitCode}`;
    const how = signalCode === null ? end : `was ended by ${signalCode}`;
    const words = this.stderr[this.stderr.length - 1];
    return words === undefined ? how : `${how}: ${words.trim().slice(0, 300)}`;
  }

  private async end(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (client !== undefined) await this.close(client);
  }

  private async close(client: Client): Promise<void> {
    try {
      await client.stop(STOP_MS);
    } catch (error) {
      this.log.warn(`the server did not stop as asked: ${error instanceof Error ? error.message : error}`);
    } finally {
      this.kill(STOP_MS);
    }
  }

  /** End the process if it is still there after so long. */
  private kill(afterMs: number): void {
    const child = this.process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    if (afterMs === 0) child.kill("SIGKILL");
    else setTimeout(() => child.kill("SIGKILL"), afterMs).unref();
  }

  private fail(message: string, actions: string[]): void {
    this.tell({ state: "error", message });
    this.log.error(message);
    this.complain(message.startsWith("Specter") ? message : `Specter: ${message}`, actions, "error");
  }

  private tell(report: Report): void {
    this.report = report;
    this.reports.fire(report);
  }

  private complain(message: string, actions: string[], severity: "info" | "error"): void {
    const show = severity === "error" ? vscode.window.showErrorMessage : vscode.window.showInformationMessage;
    show(message, ...actions).then((action) => {
      const commands: Record<string, [string, ...unknown[]]> = {
        [INSTALL]: ["specter.install"],
        [CHOOSE]: ["workbench.action.openSettings", "specter.server.path"],
        [LOG]: ["specter.showLog"],
        [RESTART]: ["specter.restart"],
      };
      const command = action === undefined ? undefined : commands[action];
      if (command !== undefined) vscode.commands.executeCommand(...command);
    });
  }
}

/** A process that ends closes its pipes first; its last words and its exit code come a moment later. */
function lastBreath(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 50));
}

class LateError extends Error {
  constructor(milliseconds: number) {
    super(`did not answer within ${milliseconds / 1000} s`);
  }
}

function within<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new LateError(milliseconds)), milliseconds);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** On a remote machine, say where: the server must be there, not on the user's own. */
function where(): string {
  const remote = vscode.env.remoteName;
  return remote === undefined || vscode.env.uiKind === vscode.UIKind.Web ? "" : ` on the remote machine (${remote})`;
}

function settings(): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration("specter");
}

/** Where the extension installs a server. */
export function environmentFolder(context: vscode.ExtensionContext): string {
  return path.join(context.globalStorageUri.fsPath, "server");
}
