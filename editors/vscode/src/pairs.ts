// Reads the table that `specter pairs` prints. Pure.

export interface Pair {
  readonly name: string;
  readonly detail: string;
  readonly here: boolean; // both models are on this machine
}

const NAME = /^(\S+) +([\d.]+ GB) {2,}(.*?) {2,}(\S.*)$/;
const MODEL = /^ {2}(target|draft) +(\S.*?)(?: {2,}(.*))?$/;

export function parsePairs(table: string): Pair[] {
  return table.split(/\r?\n(?:\r?\n)+/).flatMap((block) => {
    const [first = "", ...rest] = block.split(/\r?\n/);
    const head = NAME.exec(first);
    if (head === null) return [];
    const [, name = "", memory = "", , licence = ""] = head;
    const models = rest.map((line) => MODEL.exec(line)).filter((match) => match !== null);
    const here = models.every(([, , , where = ""]) => where === "" || where === "on this machine");
    const names = models.map(([, , model = ""]) => model).filter((model) => model !== "none");
    return [{ name, detail: [names.join(" + "), memory, licence.trim()].join(" · "), here }];
  });
}
