"""The server's copy of a document against the editor's, after many edits, in every position encoding."""

from __future__ import annotations

import json
import random

import pytest

from .client import OpenFile
from .raw_client import frame

EDITS = 300
# Line ends that LSP knows, and others that only Python does; wide characters of every UTF-8 and UTF-16 length.
PIECES = [
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\x0c",
    "\x0b",
    "\x85",
    "\u2028",
    "\u2029",
    "\x1c",
    "é",
    "漢字",
    "😀",
    "e\u0301",
    "👩‍💻",
]
PIECES += ["def f(x):", "return x + 1", "    ", "\t", "a", "(", ")", '"', "#", "\ufeff", ""]


def some_text(chance: random.Random, pieces: int) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(0, pieces)))


def some_place(chance: random.Random, document: OpenFile) -> int:
    """An offset where a cursor can be."""
    offset = chance.randint(0, len(document.buffer.text))
    return offset - document.buffer.splits_line_end(offset)


def edit_once(chance: random.Random, document: OpenFile) -> None:
    """As users, formatters and refactorings do: typing, deleting, replacing, several at once, everything anew."""
    kind = chance.random()
    if kind < 0.02 or len(document.buffer.text) > 600:
        document.replace_all(some_text(chance, 12))
    elif kind < 0.15:  # a rename: several edits in one notification, given from the end of the text to its beginning
        places = sorted({some_place(chance, document) for _ in range(6)}, reverse=True)
        document.edit(
            *((start, end, chance.choice(PIECES)) for end, start in zip(places[::2], places[1::2], strict=False))
        )
    else:
        document.cursor = some_place(chance, document)
        if kind < 0.6:
            document.type(chance.choice(PIECES))
        elif kind < 0.8:
            document.delete(min(document.cursor, chance.randint(0, 6)))
        else:
            end = some_place(chance, document)
            start, end = sorted((document.cursor, end))
            document.edit((start, end, some_text(chance, 4)))
    document.cursor = min(document.cursor, len(document.buffer.text))


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("seed", [1, 2])
async def test_random_edits_leave_the_same_text(encoded, seed):
    """F29, F30. `specter/context` every 30 edits and at the end: prefix and suffix are the harness's own, line ends as
    \\n. Seen to fail with str.splitlines, and with code points for UTF-16 units."""
    chance = random.Random(seed)
    document = encoded.open(f"file:///w/random{seed}.py", some_text(chance, 20))
    for count in range(1, EDITS + 1):
        edit_once(chance, document)
        if count % 30 == 0:
            await assert_same(chance, document)
    document.close()


async def assert_same(chance: random.Random, document: OpenFile) -> None:
    document.cursor = some_place(chance, document)
    context = await document.client.context(document.uri, document.position)
    text, cursor = document.buffer.text, document.cursor
    assert context["prefix"] == normalised(text[:cursor])
    assert context["suffix"] == normalised(text[cursor:])


def normalised(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.asyncio(loop_scope="session")
async def test_places_outside_the_text_are_clamped(encoded):
    """The LSP: a character past the end of its line is the line's end. Seen to fail with an end behind the line end."""
    document = encoded.open("file:///w/clamp.py", "ab\r\n😀c\nlast")
    for position, prefix in [
        ({"line": 0, "character": 99}, "ab"),
        ({"line": 1, "character": 99}, "ab\n😀c"),
        ({"line": 2, "character": 99}, "ab\n😀c\nlast"),
        ({"line": 99, "character": 0}, "ab\n😀c\nlast"),
        ({"line": 1, "character": 0}, "ab\n"),
    ]:
        assert (await encoded.context(document.uri, position))["prefix"] == prefix
    document.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_reopening_replaces_and_closing_forgets(encoded):
    """F51, and uris that differ only after decoding are two. Seen to fail with decoded uris as keys."""
    first = encoded.open("file:///w/a%20b.py", "one")
    second = encoded.open("file:///w/a%2520b.py", "two")
    again = encoded.open("file:///w/a%20b.py", "three")
    assert (await encoded.context(first.uri, again.position))["prefix"] == "three"
    assert (await encoded.context(second.uri, second.position))["prefix"] == "two"
    again.close()
    assert await encoded.ask_completion(first.uri, {"line": 0, "character": 0}).items() == []
    second.close()


def test_the_document_is_the_one_at_the_moment_of_the_request(raw):
    """Requests and edits in one write: each answer is about the text as it was then. Seen to fail with handlers that
    start a loop turn after their message."""
    uri, messages, wanted = "file:///w/moment.py", [], {}
    raw.open(uri, "x")
    for count in range(20):
        wanted[f"moment-{count}"] = "x" + "y" * count
        question = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 99}}
        start = {"line": 0, "character": 1 + count}
        change = {"range": {"start": start, "end": start}, "text": "y"}
        edit = {"textDocument": {"uri": uri, "version": count + 2}, "contentChanges": [change]}
        messages.append({"id": f"moment-{count}", "method": "specter/context", "params": question})
        messages.append({"method": "textDocument/didChange", "params": edit})
    raw.send_bytes(b"".join(frame(json.dumps({"jsonrpc": "2.0", **message}).encode()) for message in messages))
    assert {id_: raw.reply(id_)["result"]["prefix"] for id_ in wanted} == wanted
