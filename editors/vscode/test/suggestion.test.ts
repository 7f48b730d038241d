import assert from "node:assert/strict";
import { test } from "node:test";
import { type Alternative, advance, type Edit, type Position, Suggestion } from "../src/suggestion";

const CURSOR: Position = { line: 3, character: 8 };

function at(line: number, character: number): Position {
  return { line, character };
}

function insert(place: Position, text: string): Edit {
  return { start: place, end: place, text };
}

function alternatives(text: string, start = CURSOR, end = start): Alternative[] {
  return [{ id: "1", text, start, end }];
}

function fresh(text?: string): Suggestion {
  const suggestion = new Suggestion(CURSOR, CURSOR, undefined, "");
  if (text !== undefined) suggestion.grow(alternatives(text));
  return suggestion;
}

function shown(suggestion: Suggestion): string | undefined {
  return suggestion.show(undefined)[0]?.text;
}

test("the first complete line is presentable at once, half a line after the user's patience", () => {
  const suggestion = fresh("return a");
  assert.equal(suggestion.presentable(false), false);
  assert.equal(suggestion.presentable(true), true);
  suggestion.grow(alternatives("return a\n"));
  assert.equal(suggestion.presentable(false), true);
});

test("an empty first line is not a complete line; white space alone is nothing", () => {
  const suggestion = fresh("\n    ");
  assert.equal(suggestion.presentable(true), false);
  suggestion.grow(alternatives("\n    return"));
  assert.equal(suggestion.presentable(false), false);
  suggestion.grow(alternatives("\n    return a\n"));
  assert.equal(suggestion.presentable(false), true);
});

test("what is on the screen only grows: a text that takes some of it back is not taken", () => {
  const suggestion = fresh("return a + b");
  assert.equal(shown(suggestion), "return a + b");
  suggestion.grow(alternatives("return a"));
  suggestion.grow([]);
  suggestion.finish();
  assert.equal(shown(suggestion), "return a + b");
});

test("while it grows, white space at the end waits for what follows", () => {
  const suggestion = fresh("a = 1\n    ");
  assert.equal(shown(suggestion), "a = 1");
  assert.equal(suggestion.hasGrown, false);
  suggestion.grow(alternatives("a = 1\n    b"));
  assert.equal(suggestion.hasGrown, true);
  assert.equal(shown(suggestion), "a = 1\n    b");
});

test("typing along shortens what is left, and needs no other request", () => {
  const suggestion = fresh("return");
  shown(suggestion);
  assert.equal(suggestion.follow(insert(CURSOR, "r")), true);
  assert.equal(suggestion.follow(insert(at(3, 9), "e")), true);
  assert.equal(suggestion.covers(at(3, 10), undefined), true);
  suggestion.grow(alternatives("return x"));
  suggestion.finish();
  const [item] = suggestion.show(undefined);
  assert.deepEqual(item, { id: "1", text: "turn x", start: at(3, 10), end: at(3, 10) });
  assert.equal(suggestion.accepted, 2);
});

test("typing ahead of the stream is followed until the stream says otherwise", () => {
  const suggestion = fresh("re");
  assert.equal(suggestion.follow(insert(CURSOR, "retu")), true);
  suggestion.grow(alternatives("rest"));
  assert.equal(suggestion.id, "1");
  assert.equal(suggestion.presentable(true), false);
  suggestion.grow(alternatives("return"));
  assert.equal(shown(suggestion), "rn");
});

test("a keystroke that differs contradicts, whether the text is complete or not", () => {
  assert.equal(fresh("return").follow(insert(CURSOR, "x")), false);
  assert.equal(fresh("return").follow(insert(at(3, 7), "r")), false);
  assert.equal(fresh("(a)").follow(insert(CURSOR, "()")), false);
  const finished = fresh("re");
  finished.finish();
  assert.equal(finished.follow(insert(CURSOR, "return")), false);
});

test("Enter along a suggestion moves to the next line; CRLF counts as one line end", () => {
  const suggestion = fresh("a\r\n  b");
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "a\r\n  ")), true);
  assert.deepEqual(suggestion.cursor, at(4, 2));
  assert.equal(shown(suggestion), "b");
});

test("deleting what was typed along brings it back once the text is complete", () => {
  const suggestion = fresh("return");
  shown(suggestion);
  suggestion.follow(insert(CURSOR, "ret"));
  const deletion = { start: at(3, 10), end: at(3, 11), text: "" };
  assert.equal(suggestion.follow(deletion), false);
  suggestion.finish();
  assert.equal(suggestion.follow(deletion), true);
  assert.equal(shown(suggestion), "turn");
  assert.equal(suggestion.follow({ start: at(3, 7), end: at(3, 10), text: "" }), false);
});

test("a bracket that the editor closes at once is typed along, and its closer is replaced", () => {
  const suggestion = fresh("(a, b)");
  shown(suggestion);
  assert.equal(suggestion.follow(insert(CURSOR, "()")), false); // the server has stopped
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "()")), true);
  assert.deepEqual(suggestion.show(undefined)[0], { id: "1", text: "a, b)", start: at(3, 9), end: at(3, 10) });
  assert.equal(suggestion.follow(insert(at(3, 9), "a, b")), true);
  assert.equal(suggestion.follow({ start: at(3, 13), end: at(3, 14), text: ")" }), true); // typed over
  assert.equal(suggestion.covers(at(3, 14), undefined), false);
});

test("without its closer in the suggestion, a closed bracket contradicts", () => {
  const suggestion = fresh("{\n  a");
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "{}")), false);
});

test("a pair that was accepted is no bracket that was typed", () => {
  const suggestion = fresh("() + 1");
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "()"), true), true);
  assert.deepEqual(suggestion.cursor, at(3, 10));
});

test("VS Code accepts the rest by writing what is there already once more", () => {
  const suggestion = fresh("e.read(file)");
  shown(suggestion);
  suggestion.finish();
  suggestion.follow(insert(CURSOR, "e."));
  suggestion.follow(insert(at(3, 10), "read"), true);
  assert.equal(suggestion.follow({ start: at(3, 10), end: at(3, 14), text: "read(file)" }), true);
  assert.equal(suggestion.accepted, "e.read(file)".length);
  assert.equal(suggestion.onScreen, false);
});

test("an accepted suggestion covers nothing any more", () => {
  const suggestion = fresh("return");
  shown(suggestion);
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "return")), true);
  assert.equal(suggestion.onScreen, false);
  assert.equal(suggestion.covers(at(3, 14), undefined), false);
});

test("an item that replaces what is after the cursor goes on doing so", () => {
  const suggestion = new Suggestion(CURSOR, CURSOR, undefined, "");
  suggestion.grow(alternatives("abc)", CURSOR, at(3, 9)));
  suggestion.follow(insert(CURSOR, "a"));
  suggestion.finish();
  assert.deepEqual(suggestion.show(undefined)[0], { id: "1", text: "bc)", start: at(3, 9), end: at(3, 10) });
});

test("with the suggest widget's item, its range and its text lead", () => {
  const selected = { start: at(3, 5), end: CURSOR, text: "console" };
  const suggestion = new Suggestion(selected.start, CURSOR, selected, "con");
  suggestion.grow(alternatives("console.log(x)", selected.start, CURSOR));
  suggestion.finish();
  assert.equal(suggestion.covers(CURSOR, undefined), false);
  assert.equal(suggestion.covers(CURSOR, { ...selected, text: "confirm" }), false);
  assert.equal(suggestion.covers(CURSOR, selected), true);
  assert.deepEqual(suggestion.show(selected)[0], { id: "1", text: "console.log(x)", start: at(3, 5), end: CURSOR });
  assert.equal(suggestion.follow(insert(CURSOR, "s")), true);
  const wider = { ...selected, end: at(3, 9) };
  assert.equal(suggestion.covers(at(3, 9), wider), true);
  assert.deepEqual(suggestion.show(wider)[0]?.end, at(3, 9));
});

test("alternatives that the user typed against are left out", () => {
  const suggestion = new Suggestion(CURSOR, CURSOR, undefined, "");
  const one = { start: CURSOR, end: CURSOR };
  suggestion.grow([
    { id: "1", text: "abc", ...one },
    { id: "2", text: "axy", ...one },
  ]);
  suggestion.finish();
  assert.deepEqual(
    suggestion.show(undefined).map((item) => item.text),
    ["abc", "axy"],
  );
  suggestion.follow(insert(CURSOR, "ab"));
  assert.deepEqual(
    suggestion.show(undefined).map((item) => item.text),
    ["c"],
  );
});

test("alternatives that come with the last word are more than on the screen", () => {
  const suggestion = fresh("abc");
  shown(suggestion);
  const one = { start: CURSOR, end: CURSOR };
  suggestion.grow([
    { id: "1", text: "abc", ...one },
    { id: "2", text: "axy", ...one },
  ]);
  assert.equal(suggestion.hasGrown, false);
  suggestion.finish();
  assert.equal(suggestion.hasGrown, true);
  assert.equal(suggestion.show(undefined).length, 2);
  assert.equal(suggestion.hasGrown, false);
});

test("an alternative that is taken in part or typed along comes to the front", () => {
  const suggestion = new Suggestion(CURSOR, CURSOR, undefined, "");
  const one = { start: CURSOR, end: CURSOR };
  suggestion.grow([
    { id: "1", text: "abc", ...one },
    { id: "2", text: "axyz", ...one },
  ]);
  suggestion.finish();
  assert.equal(suggestion.follow(insert(CURSOR, "ax")), false, "it was never shown");
  suggestion.show(undefined);
  assert.equal(suggestion.follow(insert(CURSOR, "ax"), true), true);
  assert.equal(suggestion.id, "2");
  assert.equal(shown(suggestion), "yz");
  assert.equal(suggestion.follow(insert(at(3, 10), "b")), false);
});

test("places are counted in UTF-16 units", () => {
  assert.deepEqual(advance(CURSOR, "🙂"), at(3, 10));
  assert.deepEqual(advance(CURSOR, "a\nbc\n"), at(5, 0));
});
