// Bundles the extension into dist/, or with `test` the unit tests into out/test/.
import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const mode = process.argv[2] ?? "development";
const common = { bundle: true, platform: "node", format: "cjs", target: "node20", logLevel: "warning" };

if (mode === "test") {
  rmSync("out/test", { recursive: true, force: true });
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({ ...common, entryPoints: tests.map((name) => `test/${name}`), outdir: "out/test", sourcemap: "inline" });
} else {
  rmSync("dist", { recursive: true, force: true });
  const production = mode === "production";
  await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    external: ["vscode"],
    minify: production,
    sourcemap: !production,
  });
  copyFileSync("../../LICENSE", "LICENSE");
}
