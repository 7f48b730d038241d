import assert from "node:assert/strict";
import { test } from "node:test";
import { type Place, present, type Report } from "../src/present";

const PLACE: Place = { language: "python", languageOff: false, tooLargeMb: undefined, restricted: false };
const READY: Report = {
  state: "ready",
  message: "",
  pair: "embedded",
  device: "cpu",
  tokensPerSecond: 120,
  acceptance: 0.714,
};

test("loading shows its percent", () => {
  const { text } = present({ state: "loading", message: "reading", percent: 41.6 }, undefined, PLACE);
  assert.equal(text, "$(loading~spin) Specter 42%");
});

test("ready shows the pair, the device, the speed, the acceptance and the last latency", () => {
  const { tooltip } = present(READY, { firstMs: 61.2, totalMs: 190 }, PLACE);
  for (const part of ["embedded", "cpu", "120 tokens/s", "71 %", "61 ms to the first text, 190 ms in all"]) {
    assert.ok(tooltip.includes(part), `${part} in ${tooltip}`);
  }
});

test("a language that is switched off and a file that is too large read as off, with the reason", () => {
  const off = present(READY, undefined, { ...PLACE, languageOff: true });
  assert.match(off.text, /circle-slash/);
  assert.match(off.tooltip, /switched off for python/);
  assert.match(present(READY, undefined, { ...PLACE, tooLargeMb: 3.14 }).tooltip, /too large \\\(3\.1 MB\\\)/);
});

test("an error stays an error in a file that is switched off", () => {
  const shown = present({ state: "error", message: "no `models`" }, undefined, { ...PLACE, languageOff: true });
  assert.equal(shown.severity, "error");
  assert.match(shown.tooltip, /no \\`models\\`/);
});

test("restricted mode is said", () => {
  assert.match(present(READY, undefined, { ...PLACE, restricted: true }).tooltip, /Restricted mode/);
});
