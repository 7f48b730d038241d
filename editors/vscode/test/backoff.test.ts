import assert from "node:assert/strict";
import { test } from "node:test";
import { FORGET_MS, retryDelay } from "../src/backoff";

test("each death doubles the wait, the sixth in a row ends it, an old one is forgotten", () => {
  const delays = [1, 2, 3, 4, 5, 6].map((count) => retryDelay(Array(count).fill(0), 0));
  assert.deepEqual(delays, [500, 1000, 2000, 4000, 8000, undefined]);
  assert.equal(retryDelay([0, 0, 0, 0, 0, FORGET_MS], FORGET_MS), 500);
});
