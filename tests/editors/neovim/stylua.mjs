// Formats Lua files as editors/neovim/.stylua.toml says: `node stylua.mjs FOLDER [--check] FILE…`. FOLDER has the npm package
// @johnnymorganz/stylua in its node_modules. With --check nothing is written; exit code 1 and the names of the files
// that would change.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [folder, ...rest] = process.argv.slice(2);
const { Config, formatCode, IndentType, LuaVersion, OutputVerification, QuoteStyle } = createRequire(path.resolve(folder, "_"))("@johnnymorganz/stylua");

const settings = readFileSync(new URL("../../../editors/neovim/.stylua.toml", import.meta.url), "utf8");
const kinds = { indent_type: IndentType, quote_style: QuoteStyle };

function config() {
  const made = Config.new(); // formatCode takes it away
  for (const [, key, value] of settings.matchAll(/^(\w+) = "?(\w+)"?$/gm)) made[key] = kinds[key]?.[value] ?? Number(value);
  made.syntax = LuaVersion.LuaJIT;
  return made;
}

let changed = 0;
for (const file of rest.filter((one) => one !== "--check")) {
  const text = readFileSync(file, "utf8");
  const formatted = formatCode(text, config(), undefined, OutputVerification.Full);
  if (formatted === text) continue;
  changed++;
  console.log(file);
  if (!rest.includes("--check")) writeFileSync(file, formatted);
}
process.exit(rest.includes("--check") && changed ? 1 : 0);
