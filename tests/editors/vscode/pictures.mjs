// The READMEs' pictures, from a real run: `node pictures.mjs FOLDER`. Frames of the screen go to FOLDER/frames with their
// times, still pictures beside them; pictures.py makes the animation.

import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Editor, until } from "./editor.mjs";

const [folder] = process.argv.slice(2);
const SOURCE = `def read_lines(path):
    with open(path) as file:
        return file.readlines()


def write_lines(path, lines):
    `;

const editor = await Editor.start(folder, {
  files: { "lines.py": SOURCE, "reader.py": "import json\n\n\ndef read_json(path):\n    with open(path) as file:\n        " },
  settings: {
    "specter.multiline": "always", "specter.maxTokens": 64, "specter.deadlineMs": 60000, "specter.streaming.patienceMs": 0,
    "workbench.colorTheme": "Dark Modern", "editor.fontSize": 15, "editor.autoClosingBrackets": "never",
    "workbench.sideBar.location": "right", "workbench.activityBar.location": "hidden", "window.commandCenter": false,
    "workbench.layoutControl.enabled": false, "breadcrumbs.enabled": false,
  },
});
const { page } = editor;
await page.setViewportSize({ width: 760, height: 400 });

async function record(action) {
  const frames = path.join(folder, "frames");
  mkdirSync(frames, { recursive: true });
  const session = await page.context().newCDPSession(page);
  const times = [];
  session.on("Page.screencastFrame", async ({ data, metadata, sessionId }) => {
    const name = `${String(times.length).padStart(4, "0")}.png`;
    times.push({ name, time: metadata.timestamp });
    writeFileSync(path.join(frames, name), Buffer.from(data, "base64"));
    await session.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
  });
  await session.send("Page.startScreencast", { format: "png", everyNthFrame: 1 });
  await action();
  await session.send("Page.stopScreencast");
  times.push({ name: null, time: Date.now() / 1000 });
  writeFileSync(path.join(folder, "frames.json"), JSON.stringify(times));
}

const still = async () => {
  let text = await editor.ghost();
  await until("the ghost text stands still", async () => {
    await page.waitForTimeout(700);
    const now = await editor.ghost();
    const same = now === text && (await editor.stats()).liveGenerations === 0;
    text = now;
    return same;
  });
};

let code = 0;
try {
  await editor.waitForStatus("sparkle");
  await editor.open("lines.py");
  await page.keyboard.press("Control+b");
  await editor.end();
  await page.waitForTimeout(800);
  await record(async () => {
    await page.waitForTimeout(500);
    await editor.type("with", 110);
    await editor.waitForGhost();
    await still();
    await editor.shot("ghost");
    const ghost = await editor.ghost();
    await editor.type(ghost.slice(0, 4), 150); // along
    await page.waitForTimeout(700);
    await page.keyboard.press("Control+ArrowRight");
    await page.waitForTimeout(800);
    if ((await editor.ghost()) !== "") await page.keyboard.press("Tab");
    await page.waitForTimeout(250);
    await page.keyboard.press("Escape");
    await page.waitForTimeout(1500);
  });
  await page.setViewportSize({ width: 760, height: 480 });
  await editor.save();
  await editor.tooltip().catch(() => {});
  await page.locator('[id*="specter.status"]').hover();
  await page.waitForTimeout(900);
  await editor.shot("status");
  await page.locator('[id*="specter.status"]').click();
  await page.waitForSelector(".quick-input-list .monaco-list-row");
  await page.waitForTimeout(300);
  await editor.shot("menu");
  await page.keyboard.press("Escape");
  await editor.open("reader.py");
  await editor.end();
  await editor.command("Specter: Show What Is Sent to the Model");
  await until("the prompt", async () => (await editor.visibleText()).includes("sends to the model"));
  await page.waitForTimeout(500);
  await editor.shot("context");
} catch (error) {
  code = 1;
  console.error(error);
  await editor.shot("failed").catch(() => {});
}
await editor.close();
process.exit(code);
