// Reads what `specter pairs --json` prints. Pure.

export interface Pair {
  readonly name: string;
  readonly detail: string;
  readonly here: boolean; // both models are on this machine
}

/** What the user may set `specter.pair` to besides a pair's name, and what that does. */
export const CHOICES = [
  { name: "", label: "Default", detail: "The pair that comes with the server" },
  { name: "auto", label: "auto", detail: "The best pair on this machine that fits the GPU" },
] as const;

interface Model {
  readonly model: string;
}

/** Throws if it is no such document. */
export function parsePairs(output: string): Pair[] {
  const { pairs } = JSON.parse(output) as {
    pairs: { name: string; target: Model; draft: Model | null; memoryGb: number; licence: string; here: boolean }[];
  };
  return pairs.map(({ name, target, draft, memoryGb, licence, here }) => {
    const models = [target, draft].flatMap((one) => (one === null ? [] : [one.model]));
    return { name, detail: [models.join(" + "), `${memoryGb} GB`, licence].join(" · "), here };
  });
}
