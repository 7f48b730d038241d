import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePairs } from "../src/pairs";

const DOCUMENT = JSON.stringify({
  pairs: [
    {
      name: "deepseek-coder-6.7b",
      target: { model: "deepseek-ai/deepseek-coder-6.7b-base", parameters: 6_740_000_000, presence: "on this machine" },
      draft: {
        model: "deepseek-ai/deepseek-coder-1.3b-base",
        parameters: 1_350_000_000,
        presence: "not on this machine",
      },
      fim: "deepseek",
      memoryGb: 22.09,
      licence: "DeepSeek licence",
      here: false,
    },
    {
      name: "codestral-22b",
      target: { model: "mistralai/Codestral-22B-v0.1", parameters: 22_200_000_000, presence: "on this machine" },
      draft: null,
      fim: "codestral",
      memoryGb: 46.28,
      licence: "MNPL",
      here: true,
    },
  ],
});

test("the pairs are read, with and without a drafting model", () => {
  assert.deepEqual(parsePairs(DOCUMENT), [
    {
      name: "deepseek-coder-6.7b",
      detail:
        "deepseek-ai/deepseek-coder-6.7b-base + deepseek-ai/deepseek-coder-1.3b-base · 22.09 GB · DeepSeek licence",
      here: false,
    },
    { name: "codestral-22b", detail: "mistralai/Codestral-22B-v0.1 · 46.28 GB · MNPL", here: true },
  ]);
});

test("what is no list of pairs is refused", () => {
  assert.throws(() => parsePairs("PAIR  MEMORY"));
  assert.throws(() => parsePairs("{}"));
});
