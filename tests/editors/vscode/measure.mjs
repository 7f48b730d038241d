// How long from a key to the first ghost text on the screen: `node measure.mjs FOLDER [SAMPLES]`. Run through measure.py.
// Warm: models loaded, the key before at the same place completed; the key contradicts what was suggested. The last line is
// JSON.

import { Editor, until } from "./editor.mjs";

const METHOD = "textDocument/inlineCompletion";
const [folder, count = "20"] = process.argv.slice(2);
const SAMPLES = Number(count);

const NAMES = ["Rectangle", "Box", "User", "Point", "Circle", "Item", "Account", "Reader"];

/** A file with one class; each sample has its own, for what was suggested before comes at once. */
const source = (index) => `class ${NAMES[index % NAMES.length]}${index}:
    """Has a width and a height."""

    def area(self):
        return self.width * self.height

    def __init__(self, width, height):`;

/** In the page: when the next key goes down and when ghost text has been drawn after it. */
async function arm(page) {
  await page.evaluate(() => {
    const now = () => performance.timeOrigin + performance.now();
    const times = {};
    window.specterTimes = times;
    addEventListener("keydown", (event) => { times.key ??= performance.timeOrigin + event.timeStamp; }, { capture: true, once: true });
    const there = () => [...document.querySelectorAll(".view-lines .ghost-text-decoration")].some((one) => one.textContent.trim() !== "");
    const observer = new MutationObserver(() => {
      if (times.key === undefined || times.drawn !== undefined || !there()) return;
      observer.disconnect();
      times.drawn = 0;
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel(); // the next task comes after the frame was painted
        port1.onmessage = () => { times.drawn = now(); };
        port2.postMessage(0);
      });
    });
    observer.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
}

/** Goes on with the body of __init__ (a suggestion comes), then types a letter that the suggestion does not begin with. */
async function sample(editor, index) {
  const { page } = editor;
  const idle = () => until("the server is idle", async () => (await editor.stats()).liveGenerations === 0);
  await editor.open(`sample${index}.py`);
  await editor.end();
  await page.keyboard.press("Enter");
  await editor.waitForGhost(undefined, 5).catch(() => "");
  await idle();
  await page.waitForTimeout(300);
  const ghost = await editor.ghost();
  const key = ["r", "f", "i", "p"].filter((letter) => !ghost.trimStart().startsWith(letter))[index % 3];
  await page.keyboard.press("Escape"); // what is on the screen when the key goes down would be taken for its answer
  await editor.noGhost();
  const asked = editor.messages(METHOD).length;
  await arm(page);
  await page.keyboard.press(key);
  const times = await until("ghost text", () => page.evaluate(() => (window.specterTimes.drawn ? window.specterTimes : undefined)), 3).catch(() => undefined);
  await idle();
  await page.keyboard.press("Escape");
  if (times === undefined) return undefined; // the model had nothing to say
  const request = editor.messages(METHOD)[asked];
  const answers = editor.messages(undefined, "server").filter((one) => one.time >= request.time && (one.params?.value?.items?.length || one.id === request.id));
  const { last } = await editor.stats();
  const [sent, first] = [request.time * 1000, answers[0].time * 1000];
  return {
    total: times.drawn - times.key,
    editor: sent - times.key,
    server: first - sent,
    model: last.ttft_ms,
    screen: times.drawn - first,
  };
}

function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const MOST = 3 * SAMPLES;
const files = Object.fromEntries(Array.from({ length: MOST }, (_, index) => [`sample${index}.py`, source(index)]));
const editor = await Editor.start(folder, { files, settings: { "editor.autoClosingBrackets": "never" } });
let code = 0;
try {
  await editor.waitForStatus("sparkle");
  await sample(editor, 0); // warm
  const samples = [];
  for (let index = 1; index < MOST && samples.length < SAMPLES; index++) {
    const one = await sample(editor, index);
    if (one) samples.push(one);
  }
  const of = (name) => Number(median(samples.map((one) => one[name])).toFixed(1));
  const numbers = { samples: samples.length, total_ms: of("total"), editor_ms: of("editor"), server_ms: of("server"), model_ms: of("model"), screen_ms: of("screen") };
  const longest = Math.max(...samples.map((one) => one.total)).toFixed(0);
  console.log(`from the key to the first ghost text on the screen: ${numbers.total_ms} ms (median of ${samples.length}, longest ${longest} ms)`);
  console.log(`  key to request (50 ms of it VS Code's own wait):   ${numbers.editor_ms} ms`);
  console.log(`  server, request to first text:                     ${numbers.server_ms} ms, of that the models ${numbers.model_ms} ms`);
  console.log(`  first text to screen, through the extension:       ${numbers.screen_ms} ms`);
  console.log(JSON.stringify(numbers));
} catch (error) {
  code = 1;
  console.error(error);
  await editor.shot("failed").catch(() => {});
}
await editor.close();
process.exit(code);
