// How long from a key to the first ghost text on the screen: `node measure.mjs FOLDER [SAMPLES]`. Run through measure.py.
// Warm: models loaded, one completion done. Each sample is a place that was never completed before. The last line is JSON.

import { Editor, until } from "./editor.mjs";

const METHOD = "textDocument/inlineCompletion";
const [folder, count = "20"] = process.argv.slice(2);
const SAMPLES = Number(count);

const OPENINGS = [
  ["json", "load_json", "return json.loa"], ["csv", "rows", "return list(csv.reade"], ["os", "size", "return os.path.getsiz"],
  ["re", "words", "return re.findal"], ["math", "area", "return math.p"], ["sys", "fail", "sys.exi"],
  ["time", "now", "return time.tim"], ["random", "pick", "return random.choic"], ["shutil", "copy", "shutil.cop"],
  ["hashlib", "digest", "return hashlib.sha25"], ["pathlib", "text", "return pathlib.Pat"], ["logging", "say", "logging.inf"],
];

/** A file of short functions, each one key short of a line that can be completed. */
function source(samples) {
  const lines = [];
  const places = [];
  for (let index = 0; index < samples; index++) {
    const [module, name, opening] = OPENINGS[index % OPENINGS.length];
    lines.push(`import ${module}`, "", "", `def ${name}_${index}(value, path):`, `    ${opening}`, "", "");
    places.push({ line: lines.length - 2, key: { loa: "d", reade: "r", getsiz: "e", findal: "l", p: "i", exi: "t", tim: "e", choic: "e", cop: "y", sha25: "6", Pat: "h", inf: "o" }[opening.split(/[.(]/).pop()] });
  }
  return { text: `${lines.join("\n")}\n`, places };
}

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

async function sample(editor, { line, key }) {
  const { page } = editor;
  await page.keyboard.press("Control+g");
  await page.locator(".quick-input-widget input").first().fill(`:${line}`);
  await page.keyboard.press("Enter");
  await page.keyboard.press("End");
  await until("the server is idle", async () => (await editor.stats()).liveGenerations === 0);
  await page.waitForTimeout(300);
  const asked = editor.messages(METHOD).length;
  await arm(page);
  await page.keyboard.press(key);
  const times = await until("ghost text", () => page.evaluate(() => (window.specterTimes.drawn ? window.specterTimes : undefined)), 15).catch(() => undefined);
  await until("the server is idle", async () => (await editor.stats()).liveGenerations === 0);
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

const { text, places } = source(SAMPLES + 10);
const editor = await Editor.start(folder, { files: { "measure.py": text }, settings: { "editor.autoClosingBrackets": "never" } });
let code = 0;
try {
  await editor.waitForStatus("sparkle");
  await editor.open("measure.py");
  await sample(editor, places[0]); // warm
  const samples = [];
  for (const place of places.slice(1)) {
    const one = await sample(editor, place);
    if (one) samples.push(one);
    if (samples.length === SAMPLES) break;
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
