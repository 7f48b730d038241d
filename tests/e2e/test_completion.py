"""Completions in real files: what is offered, what an editor makes of it, and how it streams."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
import pytest_asyncio

from .apply import neovim, neovim_screen, vscode
from .buffer import Buffer, split_lines
from .client import EditorClient, OpenFile
from .server import ENVIRONMENT

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The file; the text before the cursor; what is cut out behind it, as a user who has not written it yet.
HOLES = [
    ("inventory.py", "            total += ", "item.price * item.stock"),
    ("inventory.py", "                names += ", "[item.name]"),
    ("inventory.py", "    def total_value(self) -> float:\n        ", "total = 0.0"),
    ("inventory.py", "        self.items[item.", "name] = item"),
    ("cart.js", "      sum += ", "line.product.price * line.count;"),
    ("cart.js", "    this.lines.", "push({ product, count });"),
    ("cart.js", "    return this.lines.length ", "=== 0;"),
]
IDS = [f"{file}: {before.strip()}" for file, before, _ in HOLES]


@pytest.fixture
def hole(editor, workspace):
    """Opens a file of the workspace with a hole at the cursor."""
    opened: list[OpenFile] = []

    def open_hole(file: str, before: str, removed: str, *, eol: str = "\n") -> OpenFile:
        text = (workspace / file).read_text(encoding="utf-8")
        assert text.count(before + removed) == 1, "the hole is one place"
        text = text.replace(before + removed, before).replace("\n", eol)
        language = "javascript" if file.endswith(".js") else "python"
        document = editor.open((workspace / file).as_uri(), text, language).move_after(before.replace("\n", eol))
        opened.append(document)
        return document

    yield open_hole
    for document in opened:
        document.close()


@pytest_asyncio.fixture(loop_scope="session")
async def sole(tcp_server):
    """An editor whose requests hold nothing but their own document."""
    client = await EditorClient(options={"context": {"openFiles": False}}).connect(*tcp_server)
    yield await client.ready()
    await client.end()


def assert_inserts(document: OpenFile, item: dict[str, Any]) -> None:
    """Both editors show it, and both come to the text before the cursor, the completion, and the text after it."""
    buffer, cursor = document.buffer, document.cursor
    eol = "\r\n" if "\r\n" in buffer.text else "\n"
    start, end = (buffer.offset(item["range"][side]) for side in ("start", "end"))
    completed = buffer.text[:start] + item["insertText"].replace("\r\n", "\n").replace("\n", eol)
    assert start <= cursor <= end
    assert item["insertText"].strip(), "what nobody can see is no completion"
    for apply in (vscode, neovim):
        applied = apply(buffer, cursor, item)
        assert applied is not None, f"hidden in {apply.__name__}"
        assert applied.text == completed + buffer.text[end:], apply.__name__
        assert applied.cursor == len(completed), apply.__name__
    rest_of_line = split_lines(buffer.text[end:])[0]
    assert not rest_of_line or "\n" not in item["insertText"], "more lines within a line look otherwise than they are"
    seen = neovim_screen(buffer, cursor, item)
    first = item["range"]["start"]["line"]
    assert seen == split_lines(completed + buffer.text[end:])[first : first + len(seen)], "seen as it will be"


@pytest.mark.parametrize(("file", "before", "removed"), HOLES, ids=IDS)
async def test_a_hole_in_a_real_file_is_filled(hole, file, before, removed):
    """Seen to fail with items without a range (the rest of the line would go), and with ranges one off."""
    document = hole(file, before, removed)
    item = await document.complete()
    assert_inserts(document, item)


async def test_crlf_gives_the_same_text_and_keeps_its_line_ends(hole):
    """F32."""
    before, removed = "    def total_value(self) -> float:\n        ", "total = 0.0"
    document = hole("inventory.py", before, removed)
    item = await document.complete()
    document.close()
    windows = hole("inventory.py", before, removed, eol="\r\n")
    other = await windows.complete()
    assert other["insertText"] == item["insertText"]
    assert_inserts(windows, other)


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
async def test_several_lines(editor, eol):
    """The model writes a header of many lines. Neovim would keep each \\r within its line. Seen to fail with the
    document's line ends in the item."""
    document = editor.open("untitled:Untitled-1", "# A\n".replace("\n", eol))
    item = await document.complete()
    assert "\n" in item["insertText"], "this hole is here for its several lines"
    assert_inserts(document, item)
    document.close()


@pytest.mark.parametrize(
    ("name", "text", "cursor"),
    [
        ("empty document", "", 0),
        ("end of file", "import os\nimport sys\n\n\ndef main():\n    print(", None),
        ("end of file after a line end", "import os\nimport sys\n", None),
        ("column 0 of an empty line", "def main():\n\n\nmain()\n", 12),
        ("beginning of the file", "\nimport os\n", 0),
        ("only blanks", "   ", 3),
    ],
)
async def test_edges_of_a_document(editor, name, text, cursor):
    """Nothing may be offered, but what is must fit. F07, F08, F54."""
    document = editor.open(f"file:///w/edge/{name.replace(' ', '_')}.py", text)
    document.cursor = len(text) if cursor is None else cursor
    items = await document.ask().items()
    assert len(items) <= 1
    for item in items:
        assert_inserts(document, item)
    document.close()
    if name in ("empty document", "end of file"):
        assert items, "here there is something to say"


@pytest.mark.parametrize("path", [".env", "deploy/id_rsa", ".aws/credentials", "server.pem"])
async def test_secrets_are_left_alone(editor, path):
    """F58: an empty list, and no context. Seen to fail without the list of secret files."""
    before = (await editor.stats())["last"]
    document = editor.open(f"file:///w/{path}", "TOKEN=abc\nPASSWORD=", "plaintext")
    assert await document.ask().items() == []
    assert await editor.context(document.uri, document.position) == {"excluded": True}
    assert (await editor.stats())["last"] == before, "nothing was computed"
    document.close()


async def test_a_document_never_opened_has_no_completions(editor):
    assert await editor.ask_completion("file:///w/never.py", {"line": 0, "character": 0}).items() == []


async def test_the_item_of_the_popup_is_extended(hole):
    """VS Code and Visual Studio show only what replaces the popup's range and begins with its text."""
    document = hole("cart.js", "    this.lines.", "push({ product, count });")
    at = document.position
    selected = {"range": {"start": at, "end": at}, "text": "push"}
    items = await document.ask(selectedCompletionInfo=selected).items()
    for item in items:
        assert item["insertText"].startswith("push")
        assert item["range"] == selected["range"]
    document.type("xyz")
    place = {"start": at, "end": document.position}
    assert await document.ask(selectedCompletionInfo={"range": place, "text": "push"}).items() == []


async def test_streaming_is_cumulative_and_the_reply_has_the_last_word(editor):
    """Each value extends the one before and the reply extends the last. Seen to fail with pieces instead of the whole
    text, and with a sequence from 0."""
    document = editor.open("file:///w/stream.py", "")
    asked = document.ask(stream=True)
    item = await asked.item()
    assert len(asked.partials) >= 3, "it does stream"
    assert [partial["sequence"] for partial in asked.partials] == list(range(1, len(asked.partials) + 1))
    texts = []
    for partial in asked.partials:
        (one,) = partial["items"]
        assert one["range"] == item["range"]
        assert one["command"] == item["command"]
        texts.append(one["insertText"])
    for shorter, longer in zip(texts, [*texts[1:], item["insertText"]], strict=True):
        assert longer.startswith(shorter)
    assert len(set(texts)) == len(texts), "a value without news is none"
    amount = len(asked.partials)
    await editor.stats()
    assert len(asked.partials) == amount, "nothing comes after the reply"
    document.close()


async def test_without_a_token_nothing_is_streamed(editor):
    document = editor.open("file:///w/quiet.py", "")
    asked = document.ask()
    await asked.items()
    assert asked.partials == []
    document.close()


async def test_typing_what_is_suggested_does_not_end_the_request(editor):
    """The reply still fits where it was asked for, and editors show the part not typed yet. Seen to fail with any edit
    as a reason to stop."""
    document = editor.open("file:///w/typed.py", "")
    asked = document.ask(stream=True)
    await editor.until(lambda: asked.partials, "text")
    before, cursor = Buffer(document.buffer.text), document.cursor
    key = asked.partials[0]["items"][0]["insertText"][0]
    document.type(key)
    item = await asked.item()
    assert len(item["insertText"]) > 20, "it went on to its end"
    applied = vscode(before, cursor, item, typed=key)
    assert applied is not None
    assert applied.text == item["insertText"]
    document.close()


async def test_greedy_text_is_that_of_plain_decoding(sole, tmp_path):
    """The server speculates; `specter complete --drafter none` does not. Both must say the same, up to what the server
    trims. Seen to fail with a guess accepted unseen."""
    text = "def mean(values):\n    return "
    path = tmp_path / "mean.py"
    path.write_text(text)
    document = sole.open(path.as_uri(), text)
    item = await document.complete()
    document.close()
    assert (await sole.stats())["last"]["drafted"] > 0
    assert complete_plainly(path, text).startswith(item["insertText"])


def complete_plainly(path: Any, text: str) -> str:
    lines = text.split("\n")
    place = f"{path}:{len(lines)}:{len(lines[-1]) + 1}"
    command = [
        sys.executable,
        "-m",
        "lsp_server",
        "complete",
        place,
        "--json",
        "--raw",
        "--device",
        "cpu",
        "--drafter",
        "none",
    ]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    completion = json.loads(done.stdout)
    assert completion["drafted"] == 0
    return completion["text"]


@pytest.mark.parametrize("line", ['s = "😀" + ', "# 漢字と😀 ", 'print("é", ', "𝒙 = 1; y = 𝒙 + "])
async def test_every_position_encoding(encoded, line):
    """F27: the item's range is at the cursor in the client's own units. Seen to fail with code points on the wire."""
    document = encoded.open("file:///w/wide.py", "import sys\n" + line + "\nprint(s)\n")
    document.move_after(line)
    context = await encoded.context(document.uri, document.position)
    assert context["prefix"].endswith(line)
    assert context["suffix"].startswith("\nprint")
    for item in await document.ask().items():
        assert item["range"] == {"start": document.position, "end": document.position}
        assert_inserts(document, item)
    document.close()


async def test_two_clients_of_a_server_have_their_own_documents(tcp_server):
    one = await EditorClient().connect(*tcp_server)
    two = await EditorClient(("utf-8",)).connect(*tcp_server)
    await asyncio.gather(one.ready(), two.ready())
    document = one.open("file:///w/same.py", "import os\n")
    other = two.open("file:///w/same.py", "s = '😀'\nx = ")
    assert (await one.context(document.uri, document.position))["prefix"] == document.buffer.text
    assert (await two.context(other.uri, other.position))["prefix"] == other.buffer.text
    await two.end()
    assert len(await document.ask().items()) <= 1, "the first client is served when the second has gone"
    await one.end()
