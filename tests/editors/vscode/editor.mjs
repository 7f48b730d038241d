// A real VS Code: code-server with the packed extension, in headless chromium. Reads the screen as a user would, and the
// messages between the extension and the server through relay.py. To start one takes most of a test's time, so the next
// test may get another window of it (`reopen`), or the same one, tidied up (`renew`).

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import { fileURLToPath } from "node:url";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const TOOLS = process.env.SPECTER_VSCODE_TOOLS;
const { chromium } = createRequire(`${TOOLS}/package.json`)("playwright-core");

const SETTINGS = {
  "security.workspace.trust.enabled": false,
  "workbench.startupEditor": "none",
  "workbench.tips.enabled": false,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "editor.minimap.enabled": false,
  "editor.inlineSuggest.enabled": true,
  "editor.quickSuggestions": { other: "off", comments: "off", strings: "off" },
  "editor.suggestOnTriggerCharacters": false,
  "editor.parameterHints.enabled": false,
  "editor.cursorBlinking": "solid",
  "editor.fontFamily": "DejaVu Sans Mono",
  "files.autoSave": "off",
  "chat.disableAIFeatures": true,
  "telemetry.telemetryLevel": "off",
  "update.mode": "none",
  "extensions.ignoreRecommendations": true,
};

/** Closes the editor that is open, whatever was typed into it, and the notifications. */
const TIDY = {
  key: "ctrl+alt+shift+f9",
  command: "runCommands",
  args: { commands: ["notifications.clearAll", "workbench.action.closePanel", "workbench.action.revertAndCloseActiveEditor"] },
};

/** What `specter/stats` counts from the start of the server. */
const COUNTS = ["requests", "completions", "cancelled", "superseded", "typedThrough", "shown", "accepted", "partlyAccepted", "rejected", "ignored"];

export const until = async (what, check, seconds = 60) => {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${seconds} s in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
};

export class Editor {
  /**
   * `files`: name → text; `settings` over the defaults; `server`: the command, or null to leave the setting out;
   * `shared`: the window will be used again, see `renew`.
   */
  static async start(folder, options = {}) {
    const editor = new Editor(folder);
    try {
      editor.#begin(options);
      await editor.#serve(options.env ?? {}, options.args ?? []);
      await editor.#browse();
    } catch (error) {
      await editor.close();
      throw error;
    }
    return editor;
  }

  /** Leaves the window, which ends its server, and opens another on a workspace of its own. */
  async reopen(options) {
    const pid = this.serverPid();
    await this.page.goto("about:blank");
    await until("the last window's server ends", () => !existsSync(`/proc/${pid}`));
    this.#window++;
    this.#begin(options);
    await this.#show();
  }

  /** The same window and server with other files and settings; messages, counts and page errors start anew. */
  async renew(options) {
    await until("the server is idle", async () => (await this.stats()).liveGenerations === 0);
    await this.#tidy();
    this.#begin(options);
    await until("the settings have arrived", () => this.messages(undefined, "editor").some((one) => one.result?.[0]?.exclude?.includes(this.#mark)));
    this.#before = await this.stats(); // and answered after the settings were read
    await this.waitForStatus("sparkle");
  }

  #window = 1;
  #turn = 0;
  #address = "";
  #read = 0; // bytes of messages that belong to earlier turns
  #before = {}; // the server's counts when the turn began

  constructor(folder) {
    this.folder = folder;
    this.shots = folder; // where pictures go
    mkdirSync(path.join(folder, "data/User"), { recursive: true });
    mkdirSync(path.join(folder, "data/Machine"), { recursive: true });
    mkdirSync(path.join(folder, "relay"), { recursive: true });
  }

  get workspace() {
    return path.join(this.folder, this.#window === 1 ? "workspace" : `workspace${this.#window}`);
  }

  /** A setting that does nothing but differ from turn to turn: when the server has it, it has the others, too. */
  get #mark() {
    return `**/turn-${this.#turn}`;
  }

  #begin({ files = {}, settings = {}, server = process.env.SPECTER_COMMAND, shared = false }) {
    this.#turn++;
    this.#read = existsSync(this.#log) ? statSync(this.#log).size : 0;
    this.#before = {};
    this.errors = [];
    mkdirSync(this.workspace, { recursive: true });
    for (const name of readdirSync(this.workspace)) if (name !== ".vscode") rmSync(path.join(this.workspace, name), { recursive: true });
    for (const [name, text] of Object.entries(files)) this.write(name, text);
    const all = shared ? { ...SETTINGS } : { ...SETTINGS, ...settings };
    // code-server hears of changes in the workspace, and not of those in the user's settings.
    if (shared) this.write(".vscode/settings.json", JSON.stringify({ ...settings, "specter.exclude": [this.#mark] }));
    if (server !== null) all["specter.server.path"] = this.relay(server);
    // To VS Code this is a remote window: what belongs to a machine is read from the remote machine's settings only.
    const machine = Object.entries(all).filter(([key]) => key.startsWith("specter.server."));
    writeFileSync(path.join(this.folder, "data/Machine/settings.json"), JSON.stringify(Object.fromEntries(machine)));
    writeFileSync(path.join(this.folder, "data/User/keybindings.json"), JSON.stringify([TIDY]));
    writeFileSync(path.join(this.folder, "data/User/settings.json"), JSON.stringify(all));
  }

  async #tidy() {
    await this.page.keyboard.press("Escape"); // whatever list is open
    await until("every editor is closed", async () => {
      if ((await this.page.locator(".tabs-container .tab").count()) === 0) return true;
      await this.page.keyboard.press("Control+Alt+Shift+F9");
      await this.page.waitForTimeout(50);
      return false;
    });
    await this.page.keyboard.press("Control+Alt+Shift+F9"); // there may have been notifications without an editor
  }

  /** A command that runs `server` behind the relay; its other words than "serve" go to it directly. */
  relay(server) {
    const file = path.join(this.folder, "server.sh");
    writeFileSync(file, `#!/bin/sh\n[ "$1" = serve ] || exec "${server}" "$@"\nexec "${process.env.SPECTER_PYTHON}" "${HERE}/relay.py" "${this.folder}/relay" "${server}" "$@"\n`);
    chmodSync(file, 0o755);
    return file;
  }

  async #serve(env, args) {
    const port = await freePort();
    this.#address = `http://127.0.0.1:${port}/`;
    const config = path.join(this.folder, "conf.yaml");
    writeFileSync(config, `bind-addr: 127.0.0.1:${port}\nauth: none\ncert: false\n`);
    const trust = args.includes("--trust") ? [] : ["--disable-workspace-trust"];
    this.codeServer = spawn(
      `${TOOLS}/code-server`,
      ["--config", config, "--user-data-dir", path.join(this.folder, "data"), "--extensions-dir", process.env.SPECTER_EXTENSIONS,
        "--disable-telemetry", "--disable-update-check", ...trust, "--log", "info", this.workspace],
      { env: { ...process.env, OMP_NUM_THREADS: "1", ...env }, stdio: ["ignore", "pipe", "pipe"], detached: true },
    );
    let log = "";
    for (const stream of [this.codeServer.stdout, this.codeServer.stderr]) stream.on("data", (data) => { log += data; });
    await until("code-server listens", () => {
      if (this.codeServer.exitCode !== null) throw new Error(`code-server ended:\n${log}`);
      return log.includes("HTTP server listening");
    }, 60);
  }

  async #browse() {
    this.browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    });
    this.page = await this.browser.newPage({ viewport: { width: 1000, height: 620 } });
    this.page.on("pageerror", (error) => this.errors.push(String(error)));
    this.page.on("dialog", (dialog) => dialog.accept()); // yes, leave a file that is not saved
    await this.#show();
  }

  async #show() {
    await this.page.goto(`${this.#address}?folder=${encodeURIComponent(this.workspace)}`);
    await this.page.waitForSelector(".monaco-workbench .statusbar", { timeout: 60_000 });
  }

  async close() {
    this.closed = true;
    await this.browser?.close();
    if (this.codeServer && this.codeServer.exitCode === null) {
      process.kill(-this.codeServer.pid, "SIGTERM");
      await until("code-server ends", () => this.codeServer.exitCode !== null || this.codeServer.signalCode !== null, 15).catch(() => process.kill(-this.codeServer.pid, "SIGKILL"));
    }
  }

  // --- the disk

  write(name, text) {
    const file = path.join(this.workspace, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  read(name) {
    return readFileSync(path.join(this.workspace, name), "utf8");
  }

  // --- the keyboard

  async open(name) {
    await this.#choose(name);
    await this.page.waitForSelector(`.tab.active[data-resource-name="${path.basename(name)}"]`);
    await this.page.waitForSelector(".editor-instance .view-lines .view-line");
    await this.focus();
    // VS Code makes the parts of an editor, that for ghost text among them, when it finds the time, and a key before that
    // is not completed. Its turns were taken before ours.
    await this.page.evaluate(() => new Promise((done) => requestIdleCallback(() => requestIdleCallback(done))));
    await this.page.waitForTimeout(200);
  }

  /** Chooses a file from the list of Ctrl+P, which does not learn of new ones while it is open. */
  async #choose(name) {
    const row = this.page.locator(".quick-input-list .monaco-list-row", { hasText: path.basename(name) }).first();
    await until(`${name} in the list of files`, async () => {
      await this.page.keyboard.press("Control+p");
      await this.page.locator(".quick-input-widget input").first().fill(name);
      if (await row.click({ timeout: 3000 }).then(() => true, () => false)) return true;
      await this.page.keyboard.press("Escape");
      return false;
    });
  }

  /** Opens a notebook and puts the cursor into the cell whose first line is given. */
  async openNotebook(name, line) {
    await this.#choose(name);
    const cell = this.page.locator(".notebook-editor .cell-editor-part .view-line", { hasText: line.replaceAll(" ", "\u00a0") }).first();
    await until("the cursor is in the cell", async () => {
      await cell.click({ timeout: 5000 }).catch(() => {});
      return this.page.evaluate(() => document.activeElement?.closest(".cell-editor-part") != null);
    });
    await this.page.waitForTimeout(200); // as in `open`
  }

  async focus() {
    await until("the editor has the focus", async () => {
      if (await this.page.evaluate(() => document.activeElement?.closest(".monaco-editor") != null)) return true;
      await this.page.keyboard.press("Control+1");
      return false;
    });
  }

  async end() {
    await this.page.keyboard.press("Control+End");
  }

  /** Types like a person: one key after the other. VS Code's own closing brackets would get in the way. */
  async type(text, delay = 0) {
    for (const key of text) await this.page.keyboard.press(key === "\n" ? "Enter" : key === " " ? "Space" : key, { delay: 0 }).then(() => delay && this.page.waitForTimeout(delay));
  }

  async command(title) {
    await this.page.keyboard.press("F1");
    await this.page.locator(".quick-input-widget input").first().fill(`>${title}`);
    // Exactly this one: those that were used lately stand first, and one title may begin as another.
    const label = this.page.locator(".label-name", { hasText: new RegExp(`^${title.replaceAll(/[()]/g, "\\$&")}$`) });
    await this.page.locator(".quick-input-list .monaco-list-row").filter({ has: label }).first().click();
  }

  async save() {
    await this.page.keyboard.press("Control+s");
    await until("the file is saved", async () => (await this.page.locator(".tab.active.dirty").count()) === 0);
  }

  // --- the screen

  /** The ghost text of one frame, line by line; "" if there is none. */
  ghost() {
    return this.page.evaluate(async () => {
      // VS Code draws the lines below at once and the first with the next frame: between, the screen shows neither text.
      await new Promise((drawn) => {
        const behind = new ResizeObserver(() => drawn(behind.disconnect())); // called when a frame is laid out
        behind.observe(document.body);
      });
      const clean = (text) => text.replaceAll("\u00a0", " ").replaceAll("\u200c", "");
      const inline = [...document.querySelectorAll(".view-lines .ghost-text-decoration, .view-lines .ghost-text-decoration-preview")];
      const below = [...document.querySelectorAll(".monaco-editor .view-zones .ghost-text, .monaco-editor .suggest-preview-text .view-line")];
      const first = inline.map((one) => clean(one.textContent)).join("");
      const lines = below.filter((one) => !one.parentElement.closest(".ghost-text, .suggest-preview-text .view-line")); // its words, when they are coloured
      return [first, ...lines.map((one) => clean(one.textContent))].join("\n").trimEnd();
    });
  }

  waitForGhost(check = (text) => text !== "", seconds = 30) {
    return until("ghost text", async () => {
      const text = await this.ghost();
      return check(text) ? text : undefined;
    }, seconds);
  }

  /** From now on notes the ghost text of each frame that is drawn; call what it returns to stop, and get them. */
  async watchGhost() {
    await this.page.evaluate(() => {
      const frames = [];
      const note = () => {
        if (window.specterFrames !== frames) return;
        frames.push([...document.querySelectorAll(".view-lines .ghost-text-decoration")].map((one) => one.textContent).join(""));
        requestAnimationFrame(note);
      };
      window.specterFrames = frames;
      requestAnimationFrame(note);
    });
    return () => this.page.evaluate(() => {
      const frames = window.specterFrames;
      window.specterFrames = undefined;
      return frames;
    });
  }

  async noGhost() {
    await until("no ghost text", async () => (await this.ghost()) === "");
  }

  /** What the status item says, icons as words: "sparkle Specter". */
  status() {
    return this.page.evaluate(() => {
      const item = document.querySelector('[id="specter-ls.specter.specter.status"]') ?? document.querySelector('[id*="specter.status"]');
      if (item === null) return "";
      const icon = item.querySelector(".codicon")?.className.match(/codicon-([a-z-]+?)(?:~spin)?(?: |$)/)?.[1] ?? "";
      return `${icon} ${item.textContent.trim()}`.trim();
    });
  }

  waitForStatus(icon, seconds = 120) {
    return until(`the status item shows ${icon}`, async () => (await this.status()).startsWith(`${icon} `), seconds);
  }

  async tooltip() {
    await this.page.locator('[id*="specter.status"]').hover();
    const text = await until("a tooltip", async () => {
      const hovers = await this.page.locator(".monaco-hover:visible, .workbench-hover:visible").allInnerTexts();
      return hovers.find((one) => one.includes("Specter"));
    });
    await this.page.mouse.move(500, 300);
    return text;
  }

  async notification(part, seconds = 120) {
    return until(`a notification with "${part}"`, async () => {
      const all = await this.page.locator(".notification-list-item-message").allInnerTexts();
      return all.find((one) => one.includes(part));
    }, seconds);
  }

  /** The text of the active editor as far as it is on the screen. */
  visibleText() {
    return this.page.evaluate(() =>
      [...document.querySelectorAll(".editor-instance .view-lines .view-line")]
        .sort((one, other) => Number.parseFloat(one.style.top) - Number.parseFloat(other.style.top))
        .map((line) => line.textContent.replaceAll("\u00a0", " "))
        .join("\n"),
    );
  }

  async shot(name) {
    await this.page.screenshot({ path: path.join(this.shots, `${name}.png`) });
  }

  // --- the server

  get #log() {
    return path.join(this.folder, "relay/messages.jsonl");
  }

  /** The messages between editor and server, of this turn, as the relay wrote them. */
  transcript() {
    return existsSync(this.#log) ? readFileSync(this.#log).subarray(this.#read).toString("utf8") : "";
  }

  /** The messages of this turn so far. */
  messages(method, from) {
    const lines = this.transcript().split("\n").slice(0, -1);
    const all = lines.map((line) => JSON.parse(line));
    return all.filter((one) => (method === undefined || one.method === method) && (from === undefined || one.from === from));
  }

  /** `specter/stats` of the running server; what it counts, since this turn began. */
  async stats() {
    const stats = await this.#ask("specter/stats");
    for (const name of COUNTS) stats[name] -= this.#before[name] ?? 0;
    return stats;
  }

  #ask(method) {
    return new Promise((resolve, reject) => {
      const socket = net.connect(path.join(this.folder, "relay/ask"), () => socket.write(`${method}\n`));
      let text = "";
      socket.on("data", (data) => { text += data; });
      socket.on("end", () => (text === "" ? reject(new Error("no answer")) : resolve(JSON.parse(text))));
      socket.on("error", reject);
    });
  }

  /** The server's process, the last one that was started through the relay; NaN before the first. */
  serverPid() {
    const file = path.join(this.folder, "relay/pid");
    return existsSync(file) ? Number(readFileSync(file, "utf8")) : Number.NaN;
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
