// When to start a server again that died. Pure.

export const FORGET_MS = 180_000;
const FIRST_MS = 500;
const LONGEST_MS = 30_000;
const ENOUGH = 6;

/** Milliseconds until the next try, given when it died before, the last time included; undefined: no more tries. */
export function retryDelay(deaths: readonly number[], now: number): number | undefined {
  const recent = deaths.filter((time) => now - time < FORGET_MS).length;
  return recent >= ENOUGH ? undefined : Math.min(LONGEST_MS, FIRST_MS * 2 ** (recent - 1));
}
