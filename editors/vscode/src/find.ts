// Which `specter` to run, and which Python to install one with. Pure: what is on the disk is asked through `Host`.

import * as path from "node:path";

export interface Host {
  readonly windows: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** Whether there is a file of this name that can be run. */
  runnable(file: string): boolean;
}

export type Found =
  | { readonly kind: "found"; readonly command: string; readonly origin: "setting" | "PATH" | "installed" }
  | { readonly kind: "missing" }
  | { readonly kind: "wrong-setting"; readonly setting: string };

/** The setting, then the PATH, then the environment of this extension. */
export function findServer(setting: string, environment: string, host: Host): Found {
  if (setting !== "") {
    const command = isPath(setting) ? expand(setting, host) : onPath(setting, host);
    return command !== undefined && (host.runnable(command) || host.runnable(`${command}.exe`))
      ? { kind: "found", command, origin: "setting" }
      : { kind: "wrong-setting", setting };
  }
  const command = onPath("specter", host);
  if (command !== undefined) return { kind: "found", command, origin: "PATH" };
  const installed = inEnvironment(environment, "specter", host);
  return host.runnable(installed) ? { kind: "found", command: installed, origin: "installed" } : { kind: "missing" };
}

/** Commands that may be a Python, best first. */
export function pythons(setting: string, host: Host): string[] {
  if (setting !== "") return [expand(setting, host)];
  const names = ["python3.13", "python3.12", "python3.11", "python3", "python"];
  const found = names.map((name) => onPath(name, host)).filter((command) => command !== undefined);
  return [...new Set(found)];
}

/** A program of a virtual environment. */
export function inEnvironment(environment: string, name: string, host: Pick<Host, "windows">): string {
  return host.windows ? path.join(environment, "Scripts", `${name}.exe`) : path.join(environment, "bin", name);
}

/** Whether version `have` is `least` or later; of what is no number, only the numbers in front count. */
export function atLeast(have: string, least: string): boolean {
  const [mine, theirs] = [numbers(have), numbers(least)];
  for (let index = 0; index < Math.max(mine.length, theirs.length); index++) {
    const difference = (mine[index] ?? 0) - (theirs[index] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

function numbers(version: string): number[] {
  return (/\d+(?:\.\d+)*/.exec(version)?.[0] ?? "0").split(".").map(Number);
}

function isPath(command: string): boolean {
  return /[\\/]/.test(command) || command.startsWith("~");
}

function expand(command: string, host: Host): string {
  return command === "~" || /^~[\\/]/.test(command) ? path.join(host.home, command.slice(1)) : command;
}

function onPath(name: string, host: Host): string | undefined {
  const folders = (host.env.PATH ?? host.env.Path ?? "").split(host.windows ? ";" : ":");
  const endings = host.windows ? [".exe", ".cmd", ".bat", ""] : [""];
  for (const folder of folders.filter((one) => path.isAbsolute(one))) {
    for (const ending of endings) {
      const file = path.join(folder, name + ending);
      if (host.runnable(file)) return file;
    }
  }
  return undefined;
}
