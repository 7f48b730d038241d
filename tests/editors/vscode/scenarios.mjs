// What a user does, in a real VS Code against the real server. Each ends with an error if the editor did anything else
// than it should. test_vscode.py runs them through `node scenarios.mjs BASE`: a line on stdin asks for one, by its name
// and a folder for what it leaves; a line of JSON on stdout says what became of it. BASE is for the editors they share.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { Editor, until } from "./editor.mjs";

const READER = "import json\n\n\ndef read_json(path):\n    with open(path) as file:\n        ";
/** A suggestion of several lines begins behind it; each is written once, for what was suggested before comes at once. */
const shape = ([name, sides]) =>
  `class ${name}:\n    """A ${name.toLowerCase()} with ${sides.join(", ")}."""\n\n    def __init__(self, ${sides.join(", ")}):`;
const SIDES = [
  ["Rectangle", ["width", "height", "color"]], ["Box", ["width", "height", "depth"]], ["User", ["name", "email", "password"]],
  ["Point", ["x", "y", "z"]], ["Circle", ["radius", "center", "color"]], ["Item", ["name", "price", "count"]],
];
const METHOD = "textDocument/inlineCompletion";

const [base] = process.argv.slice(2);
const PLAIN = { PATH: "/usr/bin:/bin" }; // on which there is no specter, as for an editor that a desktop starts

let folder; // of the scenario that runs
let said = []; // what it has to tell
let own = []; // editors of its own
let editors = 0;
let common; // the editor whose windows the scenarios use
let tidy = false; // the window that it shows was left by one that shares it, and all was well

/** A window of its own, in an editor of its own if the environment or the arguments have to be others. */
async function unready(options) {
  if (options.env !== undefined || options.args !== undefined) {
    const editor = await Editor.start(folder, options);
    own.push(editor);
    return editor;
  }
  tidy = false;
  if (common === undefined) {
    common = await Editor.start(path.join(base, `editor${++editors}`), { ...options, env: PLAIN });
    common.shots = folder;
  } else {
    common.shots = folder;
    await common.reopen(options);
  }
  return common;
}

/** Opens the first file and puts the cursor at its end, once the server is ready. */
async function begin(editor, options) {
  await editor.waitForStatus("sparkle");
  const [first] = Object.keys(options.files);
  await editor.open(first);
  await editor.end();
  return editor;
}

async function ready(options) {
  return begin(await unready(options), options);
}

/** The window that the scenario before left, if it can be shared; for those that leave the server and it alone. */
async function sharedWindow(options) {
  if (tidy) {
    common.shots = folder;
    await common.renew({ ...options, shared: true });
  } else {
    await unready({ ...options, shared: true });
  }
  tidy = true;
  return common;
}

async function shared(options) {
  return begin(await sharedWindow(options), options);
}

function note(value) {
  said.push(typeof value === "string" ? value : JSON.stringify(value));
}

/** Waits until no completion is asked for and none runs. */
async function idle(editor) {
  await until("the server is idle", async () => (await editor.stats()).liveGenerations === 0);
  await until("every request is answered", () => {
    const answered = new Set(editor.messages(undefined, "server").filter((one) => !one.method).map((one) => one.id));
    return editor.messages(METHOD).every((one) => answered.has(one.id));
  });
}

/** The text of the server's last answer, as it should be on the screen; undefined while the last request runs. */
function finalText(editor) {
  const { id } = editor.messages(METHOD).at(-1);
  const answer = editor.messages(undefined, "server").find((one) => one.id === id && one.result);
  return answer?.result.items[0]?.insertText.trimEnd();
}

/** The items of the answer to a request. */
function answered(editor, id) {
  return editor.messages(undefined, "server").find((one) => one.id === id && one.result).result.items;
}

/** Types a letter at the cursor that is not what the ghost text begins with. */
async function typeAgainst(editor) {
  const ghost = await editor.ghost();
  await editor.page.keyboard.press(ghost.startsWith("q") ? "z" : "q");
}

async function editsAndStaysUsable(editor, file) {
  const before = editor.read(file);
  await editor.open(file);
  await editor.end();
  await editor.type("still editable");
  await editor.save();
  assert.equal(editor.read(file), `${before}still editable`);
}

const scenarios = {
  /** Type, see the ghost text, see it grow, type through it, accept a word, accept all, save. */
  async stream() {
    const text = READER.replace("read_json", "load_table");
    const editor = await shared({ files: { "reader.py": text }, settings: { "specter.streaming.patienceMs": 1 } });
    await editor.type("return js");
    const seen = [await editor.waitForGhost()];
    await until("the ghost text is complete", async () => {
      const ghost = await editor.ghost();
      if (ghost !== seen[seen.length - 1]) seen.push(ghost);
      return ghost === finalText(editor);
    });
    await editor.shot("streamed");
    for (const [index, text] of seen.slice(1).entries()) {
      assert.ok(text.startsWith(seen[index]), `only ever extended: ${JSON.stringify(seen)}`);
    }
    const partial = editor.messages("$/progress", "server").filter((one) => one.params.value.items);
    assert.ok(partial.length > 0, "the server streamed");
    await idle(editor);
    const asked = editor.messages(METHOD).length;

    const whole = await editor.ghost();
    await editor.type(whole.slice(0, 2), 60);
    assert.equal(await editor.waitForGhost((text) => text === whole.slice(2)), whole.slice(2));
    await editor.page.keyboard.press("Control+ArrowRight");
    const rest = await editor.waitForGhost((text) => text.length < whole.length - 2);
    assert.ok(whole.endsWith(rest));
    assert.equal(editor.messages(METHOD).length, asked, "typing and accepting along needs no request");
    const partly = await until("the partial acceptance arrives", () => editor.messages("textDocument/didPartiallyAcceptCompletion")[0]);
    assert.equal(partly.params.acceptedLength, whole.length - rest.length);

    await editor.page.keyboard.press("Tab");
    await editor.noGhost();
    await editor.save();
    assert.equal(editor.read("reader.py"), `${text}return js${whole}`);
    await until("the acceptance arrives", () => editor.messages("workspace/executeCommand").some((one) => one.params.command === "specter.accepted"));
    const stats = await editor.stats();
    assert.equal(stats.accepted, 1);
    assert.equal(stats.partlyAccepted, 1);
    assert.ok(stats.shown >= 1); // one more for each that was shown while the line was typed
    assert.deepEqual(editor.errors, []);
  },

  /** It grows on the screen: more than one state of one suggestion is seen, each extends the last. */
  async grows() {
    const editor = await shared({
      files: Object.fromEntries(SIDES.map((side, index) => [`shapes${index}.py`, shape(side)])),
      settings: { "specter.streaming.patienceMs": 1, "specter.multiline": "always", "specter.maxTokens": 96 },
    });
    const longest = [];
    for (let attempt = 0; attempt < SIDES.length && longest.length < 3; attempt++) {
      await editor.open(`shapes${attempt}.py`);
      await editor.end();
      await editor.type("\n");
      const seen = [await editor.waitForGhost()];
      await until("it is complete", async () => {
        const ghost = await editor.ghost();
        if (ghost !== seen[seen.length - 1]) seen.push(ghost);
        return ghost === finalText(editor);
      });
      for (const [index, text] of seen.slice(1).entries()) {
        assert.ok(text.startsWith(seen[index]), `only ever extended: ${JSON.stringify(seen)}`);
      }
      if (seen.length > longest.length) longest.splice(0, longest.length, ...seen);
      await editor.page.keyboard.press("Escape");
      await idle(editor);
    }
    assert.ok(longest.length >= 2, `it grew: ${JSON.stringify(longest)}`);
    note(longest);
  },

  /** A keystroke that differs, and a cursor that leaves, cancel at once: no generation is left on the server. */
  async cancel() {
    const editor = await shared({
      files: Object.fromEntries(SIDES.map(([name, sides], index) => [`shapes${index}.py`, shape([`Wide${name}`, sides])])),
      settings: { "specter.streaming.patienceMs": 0, "specter.multiline": "always", "specter.maxTokens": 512, "specter.deadlineMs": 60000 },
    });
    let caught = 0;
    for (let attempt = 0; attempt < SIDES.length && caught < 2; attempt++) {
      await editor.open(`shapes${attempt}.py`);
      await editor.end();
      const cancelled = editor.messages("$/cancelRequest").length;
      await editor.type("\n");
      await editor.waitForGhost().catch(() => {});
      const live = (await editor.stats()).liveGenerations > 0;
      if (attempt % 2 === 0) await typeAgainst(editor);
      else await editor.page.keyboard.press("ArrowUp");
      if (live && (await until("the cancel is sent", () => editor.messages("$/cancelRequest").length > cancelled, 3).catch(() => false))) caught++;
      await editor.page.keyboard.press("Escape");
      await idle(editor);
    }
    assert.ok(caught > 0, "a running generation was met");
    const stats = await editor.stats();
    assert.equal(stats.liveGenerations, 0);
    assert.ok(stats.cancelled + stats.superseded > 0);
  },

  /** A cell of a notebook is completed as the end of the cells before it; what is accepted is saved in its cell. */
  async notebook() {
    const cell = (source, kind = "code") => ({
      cell_type: kind, metadata: {}, source: source.split(/(?<=\n)/), ...(kind === "code" && { outputs: [], execution_count: null }),
    });
    const first = 'import json\n\n\ndef read_settings(path):\n    with open(path, encoding="utf-8") as file:\n        return json.load(file)';
    const last = "def read_users(path):\n    with open(path";
    const book = { nbformat: 4, nbformat_minor: 4, metadata: { language_info: { name: "python" } } };
    const editor = await sharedWindow({
      files: { "book.ipynb": JSON.stringify({ ...book, cells: [cell(first), cell("# Notes", "markdown"), cell(last)] }) },
    });
    await editor.waitForStatus("sparkle");
    await editor.openNotebook("book.ipynb", last.split("\n")[0]);
    await editor.end();
    await editor.type(",");
    await editor.waitForGhost();
    assert.ok(editor.messages("notebookDocument/didChange").length > 0, "the server knows it as a notebook");
    await until("the ghost text is complete", async () => (await editor.ghost()) === finalText(editor));
    const whole = await editor.ghost();
    assert.match(whole, /encoding="utf-8"/, "as the first cell has it");
    await editor.shot("notebook");
    await editor.page.keyboard.press("Tab");
    await editor.noGhost();
    await editor.save();
    const saved = JSON.parse(editor.read("book.ipynb")).cells.map((one) => one.source.join(""));
    assert.deepEqual(saved.slice(1), ["# Notes", `${last},${whole}`]);
    assert.deepEqual(editor.errors, []);
  },

  /** Escape sends the rejection; what is on the screen goes, and stays gone. */
  async reject() {
    const editor = await shared({ files: { "reader.py": READER } });
    await editor.type("return js");
    await editor.waitForGhost();
    await idle(editor);
    await editor.page.keyboard.press("Escape");
    await editor.noGhost();
    await until("the rejection arrives", async () => (await editor.stats()).rejected === 1);
    await editor.page.waitForTimeout(500);
    assert.equal(await editor.ghost(), "");
    await editor.page.keyboard.press("Backspace");
    await editor.page.keyboard.press("s");
    await editor.waitForGhost();
    await editor.page.keyboard.press("Escape");
    await editor.page.keyboard.press("Backspace");
    await editor.page.keyboard.press("s"); // at once, without a moment for the extension
    await editor.waitForGhost();
    await editor.page.keyboard.press("Escape");
    await editor.noGhost();
    await editor.page.keyboard.press("Alt+\\");
    await editor.waitForGhost();
    const last = editor.messages(METHOD).at(-1);
    assert.equal(last.params.context.triggerKind, 1, "asked for explicitly");
    await editor.page.keyboard.press("Alt+]");
    assert.notEqual(await editor.waitForGhost(), "");
  },

  /** A key asks for alternatives: what is on the screen stays until they are there; next and previous go round. */
  async alternatives() {
    const editor = await shared({ files: { "reader.py": READER }, settings: { "specter.multiline": "never" } });
    await editor.type("return js");
    await editor.waitForGhost();
    await idle(editor);
    const first = await until("the ghost text is complete", async () => {
      const ghost = await editor.ghost();
      return ghost !== "" && ghost === finalText(editor) ? ghost : undefined;
    });
    const frames = await editor.watchGhost();
    await editor.page.keyboard.press("Alt+]");
    const second = await editor.waitForGhost((text) => text !== "" && text !== first);
    await idle(editor);
    const asked = editor.messages(METHOD);
    assert.equal(asked.at(-1).params.context.triggerKind, 1);
    const items = answered(editor, asked.at(-1).id).map((item) => item.insertText.trimEnd());
    assert.ok(items.length >= 2, `alternatives: ${JSON.stringify(items)}`);
    assert.equal(items[0], first);
    await editor.shot("alternative");
    const around = [second];
    for (const _ of items.slice(1)) {
      const before = await editor.ghost();
      await editor.page.keyboard.press("Alt+]");
      around.push(await editor.waitForGhost((text) => text !== "" && text !== before));
    }
    assert.deepEqual(around, [...items.slice(1), first], "each once, then the first again");
    await editor.page.keyboard.press("Alt+[");
    await editor.waitForGhost((text) => text === items.at(-1));
    assert.equal(editor.messages(METHOD).length, asked.length, "the server is asked once");
    assert.ok(!(await frames()).includes(""), "the screen was never without ghost text");

    await editor.page.keyboard.press("Control+ArrowRight");
    const rest = await until("a word of the alternative", async () => {
      const ghost = await editor.ghost();
      return ghost !== items.at(-1) ? ghost : undefined;
    });
    assert.ok(items.at(-1).endsWith(rest), `${rest} is the rest of ${items.at(-1)}`);
    await editor.page.keyboard.press("Tab");
    await editor.save();
    assert.ok(editor.read("reader.py").startsWith(`${READER}return js${items.at(-1)}`));
    await until("the acceptance arrives", async () => (await editor.stats()).accepted === 1);
  },

  /** Typing along never leaves the screen without ghost text, at whatever speed, until the text is used up. */
  async steady() {
    const editor = await shared({ files: { "reader.py": READER }, settings: { "editor.autoClosingBrackets": "never", "specter.multiline": "never" } });
    await editor.type("return js");
    await editor.waitForGhost();
    await idle(editor);
    const whole = await until("the ghost text is complete", async () => {
      const ghost = await editor.ghost();
      return ghost !== "" && ghost === finalText(editor) ? ghost : undefined;
    });
    const frames = await editor.watchGhost();
    await editor.type(whole.slice(0, -1), 40);
    await editor.waitForGhost((text) => text === whole.slice(-1));
    const seen = await frames();
    assert.ok(!seen.includes(""), `never without ghost text: ${JSON.stringify(seen)}`);
    await editor.page.keyboard.press("Backspace");
    await editor.waitForGhost((text) => text === whole.slice(-2));
  },

  /** "Show what is sent" shows the prompt; a file with secrets is not sent. */
  async context() {
    const editor = await shared({ files: { "reader.py": READER, ".env": "TOKEN=1\n" } });
    await editor.command("Specter: Show What Is Sent to the Model");
    const text = await until("the prompt", async () => {
      const visible = await editor.visibleText();
      return visible.includes("sends to the model") ? visible : undefined;
    });
    assert.ok(text.includes("read_json") && text.includes("tokens"), text);
    await editor.shot("context");
    await editor.open(".env");
    await editor.command("Specter: Show What Is Sent to the Model");
    await editor.notification("excluded");
    await editor.end();
    await editor.type("KEY=");
    await editor.page.waitForTimeout(800);
    assert.equal(await editor.ghost(), "");
    await editor.command("Specter: Show Statistics");
    await until("the statistics", async () => (await editor.visibleText()).includes("liveGenerations"));
  },

  /** The doctor's report opens in an editor. */
  async doctor() {
    const editor = await shared({ files: { "reader.py": READER } });
    await editor.command("Specter: Check This Installation (Doctor)");
    const text = await until("the report", async () => {
      const visible = await editor.visibleText();
      return visible.includes("Server in this window") ? visible : undefined;
    }, 90);
    assert.match(text, /ready/);
    assert.match(text, /embedded/, "the server's own report");
    await editor.shot("doctor");
  },

  /** Beside the suggest widget: the ghost text extends the focused item. */
  async widget() {
    const editor = await shared({
      files: { "widget.py": "import json\n\n\ndef load_settings(settings_path):\n    with open(settings_path) as settings_file:\n        return json.load(" },
      settings: { "editor.quickSuggestions": { other: "on" }, "editor.wordBasedSuggestions": "currentDocument", "editor.autoClosingBrackets": "never" },
    });
    await editor.type("sett");
    await editor.page.waitForSelector(".suggest-widget.visible .monaco-list-row.focused");
    const asked = await until("a request with the focused item", () =>
      editor.messages(METHOD).find((one) => one.params.context.selectedCompletionInfo !== undefined),
    );
    const { text } = asked.params.context.selectedCompletionInfo;
    await idle(editor);
    await editor.page.waitForTimeout(300);
    await editor.shot("widget");
    const ghost = await editor.ghost();
    assert.ok(ghost === "" || ghost.startsWith(text.slice("sett".length)), `${ghost} extends ${text}`);
    await editor.page.keyboard.press("ArrowDown");
    await until("the next item is asked for", () =>
      editor.messages(METHOD).some((one) => (one.params.context.selectedCompletionInfo?.text ?? text) !== text),
    );
    await editor.page.keyboard.press("Escape");
    await editor.focus();
    await editor.save();
    assert.ok(editor.read("widget.py").endsWith("sett"));
  },

  /** 20 keys a second for 10 s: no key is lost or out of order, never more than one live generation. */
  async burst() {
    const editor = await shared({ files: { "burst.py": "" }, settings: { "editor.autoIndent": "none", "editor.acceptSuggestionOnEnter": "off", "specter.multiline": "always" } });
    const text = "total = value + other * 2 # count the items ".repeat(5).slice(0, 200);
    let most = 0;
    let watching = true;
    const watch = (async () => {
      while (watching) {
        most = Math.max(most, (await editor.stats()).liveGenerations);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    })();
    const started = Date.now();
    for (const [index, key] of [...text].entries()) {
      const wait = started + index * 50 - Date.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      await editor.page.keyboard.press(key === " " ? "Space" : key);
    }
    const seconds = (Date.now() - started) / 1000;
    watching = false;
    await watch;
    await editor.page.keyboard.press("Escape");
    await editor.save();
    assert.equal(editor.read("burst.py"), text);
    await idle(editor);
    const stats = await editor.stats();
    const requests = editor.messages(METHOD).length;
    note({ seconds, keys: text.length, requests, most, stats });
    assert.ok(most <= 1, `live generations: ${most}`);
    assert.ok(seconds < 15, `the editor took ${seconds} s for ${text.length} keys`);
  },

  /** Line ends: a CRLF file stays one. */
  async crlf() {
    const editor = await shared({ files: { "crlf.py": READER.replaceAll("\n", "\r\n") } });
    await editor.type("return js");
    const ghost = await editor.waitForGhost();
    await idle(editor);
    await editor.waitForGhost((text) => text.length >= ghost.length);
    await editor.page.keyboard.press("Tab");
    await editor.page.keyboard.press("Enter");
    await editor.save();
    assert.ok(!/[^\r]\n/.test(editor.read("crlf.py")));
  },

  /** A file that is too large is edited without completions, and the status says why. */
  async large() {
    const editor = await shared({ files: { "large.py": "x = 1  # a line of some length, repeated\n".repeat(60_000), "small.py": READER } });
    await editor.waitForStatus("circle-slash", 10);
    assert.match(await editor.tooltip(), /too large/);
    await editor.focus();
    await editor.end();
    await editor.type("y = 2");
    await editor.save();
    assert.ok(editor.read("large.py").endsWith("y = 2"));
    assert.equal(editor.messages(METHOD).length, 0);
    await editor.open("small.py");
    await editor.end();
    await editor.type("return js");
    await editor.waitForGhost();
  },

  /** The list of models is the server's, with `auto` in it; what is chosen is set and loaded. */
  async pairs() {
    const editor = await shared({ files: { "reader.py": READER } });
    await editor.command("Specter: Choose Models");
    const rows = editor.page.locator(".quick-input-list .monaco-list-row");
    await until("the list", async () => (await rows.allInnerTexts()).some((row) => row.includes("embedded")), 20);
    const entries = await rows.allInnerTexts();
    for (const entry of ["Default", "auto", "embedded"]) assert.ok(entries.some((row) => row.startsWith(entry)), `${entry} in ${entries}`);
    assert.ok(entries.find((row) => row.startsWith("embedded")).includes("on this machine"));
    await editor.page.locator(".quick-input-widget input").first().fill("auto");
    await rows.filter({ hasText: "auto" }).first().click();
    const user = path.join(editor.folder, "data/User/settings.json");
    await until("the setting", () => readFileSync(user, "utf8").includes('"specter.pair": "auto"'));
    await editor.waitForStatus("sparkle");
    await editor.open("reader.py");
    await editor.end();
    await editor.type("return js");
    await editor.waitForGhost();
    tidy = false; // other models are loaded
  },

  // --- with a window of its own

  /** The server is killed: the editor stays usable and the server comes back by itself. */
  async killed() {
    const editor = await ready({ files: { "reader.py": READER } });
    const pid = editor.serverPid();
    process.kill(pid, "SIGKILL");
    await editor.waitForStatus("loading", 10);
    await editor.type("return js");
    await until("another server", () => editor.serverPid() !== pid);
    await editor.waitForStatus("sparkle");
    assert.notEqual(await editor.waitForGhost(), "", "what was typed meanwhile is completed without another key");
    await editor.page.keyboard.press("Tab");
    await editor.save();
    assert.ok(editor.read("reader.py").startsWith(`${READER}return js`));
    assert.ok(editor.read("reader.py").length > `${READER}return js`.length);
  },

  /** A window that is reloaded stops its server as the protocol wants it; nothing outlives the editor. */
  async stops() {
    const editor = await ready({ files: { "reader.py": READER } });
    const pid = editor.serverPid();
    await editor.command("Developer: Reload Window");
    await until("shutdown and exit are sent", () => editor.messages("shutdown").length > 0 && editor.messages("exit").length > 0);
    await until("the process ends", () => !existsSync(`/proc/${pid}`));
    await editor.page.waitForSelector(".monaco-workbench .statusbar", { timeout: 60_000 });
    await editor.waitForStatus("sparkle");
    const second = editor.serverPid();
    await editor.close();
    await until("the second process ends", () => !existsSync(`/proc/${second}`));
  },

  /** The status item tells the truth: loading with percent, ready, busy, off, off for a language, error. */
  async status() {
    const files = { "reader.py": READER, "notes.md": "# Notes\n" };
    const editor = await unready({ files, settings: { "specter.multiline": "always", "specter.maxTokens": 256, "specter.deadlineMs": 60000 } });
    const seen = new Set();
    await until("ready", async () => {
      const status = await editor.status();
      if (status !== "") seen.add(status);
      return status.startsWith("sparkle");
    }, 120);
    assert.ok([...seen].some((status) => /loading/.test(status)), `loading was shown: ${[...seen]}`);
    note([...seen]);
    await editor.open("reader.py");
    await editor.end();
    await editor.type("ret");
    await editor.waitForGhost();
    await idle(editor);
    const tooltip = await editor.tooltip();
    for (const word of ["ready", "embedded", "cpu", "tokens/s", "ms to the first text"]) assert.ok(tooltip.includes(word), `${word} in ${tooltip}`);
    await editor.shot("tooltip");

    await editor.command("Specter: Switch Completions On or Off for This Language");
    await editor.waitForStatus("circle-slash", 10);
    assert.match(await editor.tooltip(), /switched off for python/);
    const asked = (await editor.stats()).completions;
    await editor.focus();
    await editor.type("u");
    await editor.page.waitForTimeout(600);
    assert.equal(await editor.ghost(), "");
    assert.equal((await editor.stats()).completions, asked);
    await editor.open("notes.md");
    await editor.waitForStatus("sparkle", 10);
    await editor.open("reader.py");
    await editor.waitForStatus("circle-slash", 10);
    await editor.command("Specter: Switch Completions On or Off for This Language");
    await editor.waitForStatus("sparkle", 10);

    await editor.command("Specter: Switch Completions On or Off");
    await editor.waitForStatus("circle-slash", 10);
    assert.match(await editor.tooltip(), /specter\.enabled is false/);
    await editor.command("Specter: Switch Completions On or Off");
    await editor.waitForStatus("sparkle");
    await editor.page.locator('[id*="specter.status"]').click();
    await editor.page.waitForSelector(".quick-input-list .monaco-list-row");
    await editor.shot("menu");
    const entries = await editor.page.locator(".quick-input-list .monaco-list-row").allInnerTexts();
    for (const entry of ["Switch off", "in this workspace", "for python", "Choose models", "what is sent", "log", "doctor", "Restart"]) {
      assert.ok(entries.some((one) => one.includes(entry)), `${entry} in ${entries}`);
    }
    await editor.page.keyboard.press("Escape");
  },

  /** A model that is not there: the status says so, and the editor works. */
  async error() {
    const editor = await unready({ files: { "a.py": "x = 1\n" }, settings: { "specter.target": "/nowhere/model" } });
    await editor.waitForStatus("error");
    const tooltip = await editor.tooltip();
    assert.match(tooltip, /nowhere/);
    await editsAndStaysUsable(editor, "a.py");
  },

  // --- what can be wrong

  /** No server anywhere: an offer to install it, and an editor that works. */
  async missing() {
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null });
    await editor.waitForStatus("warning");
    await editor.notification("not installed");
    await editor.shot("missing");
    await editsAndStaysUsable(editor, "a.py");
  },

  async wrong_path() {
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.path": "/nowhere/specter" } });
    await editor.notification("/nowhere/specter");
    await editor.waitForStatus("error");
    await editsAndStaysUsable(editor, "a.py");
  },

  /** It dies at the start: its last words are in the message. */
  async dies() {
    const server = fake("echo 'specter: no room on this machine' >&2; exit 3");
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.path": server } });
    const message = await editor.notification("no room on this machine");
    assert.match(message, /exit code 3/);
    await editor.waitForStatus("error");
    await editsAndStaysUsable(editor, "a.py");
  },

  /** It never answers: that is said after the time the user allows, and the process is ended. */
  async silent() {
    const server = fake(`echo $$ > ${folder}/silent.pid; exec sleep 600`);
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.path": server, "specter.server.startTimeoutS": 2 } });
    await editor.notification("did not answer within 2 s");
    await editor.waitForStatus("error");
    const pid = readFileSync(`${folder}/silent.pid`, "utf8").trim();
    await until("the process is ended", () => !existsSync(`/proc/${pid}`));
    await editsAndStaysUsable(editor, "a.py");
  },

  /** Another version, and another program that speaks the protocol. */
  async wrong_version() {
    const answer = JSON.stringify({ jsonrpc: "2.0", id: 0, result: { capabilities: {}, serverInfo: { name: "specter", version: "0.0.3" } } });
    const server = fake(`printf 'Content-Length: ${answer.length}\\r\\n\\r\\n${answer}'; exec cat >&2`);
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.path": server } });
    await editor.notification("version 0.0.3");
    await editor.waitForStatus("error");
    await editsAndStaysUsable(editor, "a.py");
  },

  /** It dies again and again: the extension gives up, says so, and the editor works. */
  async crashes() {
    const answer = JSON.stringify({ jsonrpc: "2.0", id: 0, result: { capabilities: {}, serverInfo: { name: "specter", version: "9.0" } } });
    const server = fake(`echo x >> ${folder}/starts; printf 'Content-Length: ${answer.length}\\r\\n\\r\\n${answer}'; sleep 0.3; echo 'out of memory' >&2; exit 7`);
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.path": server } });
    const message = await editor.notification("stopped 6 times", 60);
    assert.match(message, /out of memory/);
    assert.equal(readFileSync(`${folder}/starts`, "utf8").length / 2, 6);
    await editsAndStaysUsable(editor, "a.py");
  },

  /** A folder that is not trusted cannot choose the server; completions work with the user's. */
  async untrusted() {
    const trap = fake(`touch ${folder}/trapped; exit 1`, "trap.sh");
    const editor = await unready({
      files: { "reader.py": READER, ".vscode/settings.json": JSON.stringify({ "specter.server.path": trap, "specter.target": "/nowhere" }) },
      settings: { "security.workspace.trust.enabled": true, "security.workspace.trust.startupPrompt": "never", "security.workspace.trust.banner": "never" },
      args: ["--trust"],
    });
    await editor.waitForStatus("sparkle");
    assert.match(await editor.tooltip(), /Restricted mode/);
    await editor.open("reader.py");
    await editor.end();
    await editor.type("return js");
    await editor.waitForGhost();
    assert.ok(!existsSync(`${folder}/trapped`), "the folder's server was not run");
  },

  /** No server, no Python that could install one. */
  async no_python() {
    const editor = await unready({ files: { "a.py": "x = 1\n" }, server: null, settings: { "specter.server.python": "/nowhere/python" } });
    await editor.waitForStatus("warning");
    await editor.command("Specter: Install or Update Server");
    await editor.notification("needs Python 3.11");
    await editsAndStaysUsable(editor, "a.py");
  },

  /** The offer to install, taken: an environment of its own, with a server that completes. */
  async install() {
    const wheel = makeWheel();
    const editor = await unready({
      files: { "reader.py": READER },
      server: null,
      settings: { "specter.server.package": wheel, "specter.server.python": process.env.SPECTER_BASE_PYTHON },
      env: { ...PLAIN, PIP_NO_INDEX: "1" },
    });
    await editor.notification("not installed");
    await editor.page.locator(".notification-list-item .monaco-button", { hasText: "Install" }).first().click();
    await editor.waitForStatus("sparkle", 120);
    await editor.open("reader.py");
    await editor.end();
    await editor.type("return js");
    await editor.waitForGhost();
  },
};

/** A program in place of the server. */
function fake(script, file = "fake.sh") {
  mkdirSync(folder, { recursive: true });
  const where = path.join(folder, file);
  writeFileSync(where, `#!/bin/sh\n${script}\n`);
  chmodSync(where, 0o755);
  return where;
}

/** A wheel whose `specter` is the real one, so that a test need not install gigabytes. */
function makeWheel() {
  mkdirSync(folder, { recursive: true });
  const code = `
import sys, zipfile
files = {
    "specter_stub.py": "import os, sys\\ndef main():\\n    os.execv(${JSON.stringify(process.env.SPECTER_COMMAND).replaceAll('"', "'")}, ['specter', *sys.argv[1:]])\\n",
    "specter_ls-0.1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: specter-ls\\nVersion: 0.1.0\\n",
    "specter_ls-0.1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "specter_ls-0.1.0.dist-info/entry_points.txt": "[console_scripts]\\nspecter = specter_stub:main\\n",
}
record = "specter_ls-0.1.0.dist-info/RECORD"
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr(record, "".join(f"{name},,\\n" for name in [*files, record]))
`;
  const wheel = path.join(folder, "specter_ls-0.1.0-py3-none-any.whl");
  execFileSync(process.env.SPECTER_PYTHON, ["-c", code, wheel]);
  return wheel;
}

/** Runs one and says what was wrong with it, "" if nothing was. */
async function run(name) {
  try {
    await scenarios[name]();
    return "";
  } catch (error) {
    const faults = [error.stack];
    for (const editor of own.length > 0 ? own : [common]) {
      if (editor === undefined || editor.closed) continue;
      const [status, ghost] = await Promise.all([editor.status(), editor.ghost()]).catch(() => []);
      faults.push(`status: ${status}; ghost text: ${JSON.stringify(ghost)}; page errors: ${editor.errors}`);
      await editor.shot("failed").catch(() => {});
      writeFileSync(path.join(folder, "messages.jsonl"), editor.transcript());
    }
    await common?.close();
    return faults.join("\n");
  } finally {
    for (const editor of own) await editor.close();
    if (common?.closed) [common, tidy] = [undefined, false];
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [name, where] = line.split("\t");
  [folder, said, own] = [where, [], []];
  const fault = await run(name);
  process.stdout.write(`${JSON.stringify({ fault, said })}\n`);
}
await common?.close();
process.exit();
