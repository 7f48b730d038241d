import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePairs } from "../src/pairs";

const TABLE = `PAIR                    MEMORY  FIM FORMAT          LICENCE

embedded                0.05 GB  qwen, suffix first  Apache-2.0
  target  embedded, 38 M                          on this machine
  draft   embedded, 6 M                           on this machine

deepseek-coder-6.7b     16.2 GB  deepseek            DeepSeek licence
  target  deepseek-ai/deepseek-coder-6.7b-base    on this machine
  draft   deepseek-ai/deepseek-coder-1.3b-base    not on this machine

Memory is both models' weights. \`specter complete --pair NAME …\` uses a pair; what is
not on this machine comes from huggingface.co the first time.
`;

test("the table of pairs is read", () => {
  assert.deepEqual(parsePairs(TABLE), [
    { name: "embedded", detail: "embedded, 38 M + embedded, 6 M · 0.05 GB · Apache-2.0", here: true },
    {
      name: "deepseek-coder-6.7b",
      detail:
        "deepseek-ai/deepseek-coder-6.7b-base + deepseek-ai/deepseek-coder-1.3b-base · 16.2 GB · DeepSeek licence",
      here: false,
    },
  ]);
  assert.deepEqual(parsePairs("nothing of the kind"), []);
});
