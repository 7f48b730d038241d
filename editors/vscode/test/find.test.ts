import assert from "node:assert/strict";
import { test } from "node:test";
import { atLeast, findServer, type Host, pythons } from "../src/find";

function host(files: string[], PATH = "/usr/bin:/opt/bin"): Host {
  return { windows: false, env: { PATH }, home: "/home/me", runnable: (file) => files.includes(file) };
}

test("the setting goes first, then the PATH, then what was installed", () => {
  const all = host(["/mine/specter", "/opt/bin/specter", "/env/bin/specter"]);
  const command = (setting: string, on: Host) => {
    const found = findServer(setting, "/env", on);
    return found.kind === "found" ? [found.command, found.origin] : found.kind;
  };
  assert.deepEqual(command("/mine/specter", all), ["/mine/specter", "setting"]);
  assert.deepEqual(command("", all), ["/opt/bin/specter", "PATH"]);
  assert.deepEqual(command("", host(["/env/bin/specter"])), ["/env/bin/specter", "installed"]);
  assert.deepEqual(command("", host([])), "missing");
});

test("a setting that leads nowhere is an error, not a reason to run another server", () => {
  const found = findServer("/mine/specter", "/env", host(["/opt/bin/specter"]));
  assert.deepEqual(found, { kind: "wrong-setting", setting: "/mine/specter" });
});

test("a setting may begin with ~ or be a name on the PATH", () => {
  const on = host(["/home/me/bin/specter", "/opt/bin/specter-dev"]);
  assert.equal(findServer("~/bin/specter", "/env", on).kind, "found");
  assert.equal(findServer("specter-dev", "/env", on).kind, "found");
});

test("a relative folder on the PATH, which may be the workspace, is not searched", () => {
  assert.equal(findServer("", "/env", host(["specter", "./specter", "bin/specter"], ".:bin")).kind, "missing");
});

test("Pythons are tried newest first", () => {
  const on = host(["/usr/bin/python3", "/opt/bin/python3.12"]);
  assert.deepEqual(pythons("", on), ["/opt/bin/python3.12", "/usr/bin/python3"]);
  assert.deepEqual(pythons("~/py", on), ["/home/me/py"]);
});

test("versions are compared by numbers", () => {
  assert.equal(atLeast("0.10.0", "0.9.2"), true);
  assert.equal(atLeast("0.1.0.dev3", "0.1.0"), true);
  assert.equal(atLeast("0.0.9", "0.1.0"), false);
  assert.equal(atLeast("1", "1.0.0"), true);
  assert.equal(atLeast("unknown", "0.1.0"), false);
});
