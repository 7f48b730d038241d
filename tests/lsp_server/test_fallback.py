"""Suggestions for clients without inline completion, and the trigger kinds of clients of different times."""

from __future__ import annotations

from typing import Any

import pytest
from lsp_fakes import Client, FakeEngine

from lsp_server import handshake

URI = "file:///w/a.py"
LONG = " ".join(f"{number}{chr(97 + number % 26)}" for number in range(40))


def said(text_document: Any) -> dict[str, Any]:
    client = handshake.read({"capabilities": {"textDocument": text_document}})
    return handshake.answer(client)["capabilities"]


def test_only_clients_without_inline_completion_are_offered_it() -> None:
    """Otherwise an editor would show each suggestion twice."""
    assert said({})["completionProvider"] == {}
    assert said({"inlineCompletion": None})["completionProvider"] == {}
    assert "completionProvider" not in said({"inlineCompletion": {}})


def applied(text: str, edit: dict[str, Any]) -> str:
    """The text after a TextEdit on one line, as an editor would apply it (ASCII and BMP)."""
    lines = text.split("\n")
    start, end = edit["range"]["start"], edit["range"]["end"]
    assert start["line"] == end["line"]
    line = lines[start["line"]]
    lines[start["line"]] = line[: start["character"]] + edit["newText"] + line[end["character"] :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "character", "says", "label", "expected"),
    [
        ("pri", 3, "nt(x)", "print(x)", "print(x)"),
        ("a = ", 4, "b + c", "b + c", "a = b + c"),
        ("größe = gr", 10, "öße", "größe", "größe = größe"),
        ("for x in y:", 11, "\n    print(x)\n    print(y)", "print(x)…", "for x in y:\n    print(x)\n    print(y)"),
        ("x", 1, f" = '{LONG}'", f"x = '{LONG}"[:59] + "…", f"x = '{LONG}'"),
    ],
)
async def test_an_item(
    client: Client, monkeypatch: pytest.MonkeyPatch, text: str, character: int, says: str, label: str, expected: str
) -> None:
    """The edit takes in the word before the cursor, so that whatever clients match, the typed word begins it.

    Seen to fail: Helix's way of matching, with the edit at the cursor only.
    """
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: [says]))
    client.open(URI, text)
    place = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": character}}
    result = (await client.ask(1, "textDocument/completion", place))["result"]
    (item,) = result["items"]
    assert result["isIncomplete"]
    assert applied(text, item["textEdit"]) == expected
    assert item["label"] == label
    word = text[item["textEdit"]["range"]["start"]["character"] : character]
    assert item["filterText"].startswith(word)
    assert word.isidentifier() or word == ""
    assert (item["insertTextMode"], item["insertTextFormat"]) == (1, 1)
    assert item["sortText"] > "~"
    accept = {"command": item["command"]["command"], "arguments": item["command"]["arguments"]}
    await client.ask(2, "workspace/executeCommand", accept)
    assert (await client.ask(3, "specter/stats"))["result"]["accepted"] == 1


async def test_nothing_to_offer_is_an_empty_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: []))
    client.open(URI, "x = ")
    for id_, uri in enumerate([URI, "file:///w/never_opened.py", "file:///w/.env"]):
        place = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 4}}
        assert (await client.ask(id_, "textDocument/completion", place))["result"]["items"] == []


@pytest.mark.parametrize(
    ("kinds", "texts"),
    [
        ([2, 2], [1, 1]),  # as LSP 3.18 numbers them
        ([2, 1], [1, 3]),
        ([1], [1]),  # after an edit and never a 2: of the time when 1 was automatic
        ([1, 0], [1, 3]),
        ([1, 1], [1, 3]),  # without an edit between them, a key was pressed
    ],
)
async def test_alternatives_are_for_keys_only(
    client: Client, monkeypatch: pytest.MonkeyPatch, kinds: list[int], texts: list[int]
) -> None:
    """Seen to fail with 1 taken for a key always: three completions for each letter typed in an older VS Code."""
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: [f"text{request.sampling.seed or 0}"]))
    client.open(URI, "")
    client.change(URI, 0, 0, "a")
    for id_, (kind, count) in enumerate(zip(kinds, texts, strict=True)):
        client.request(id_, URI, 0, 1, triggerKind=kind)
        assert len((await client.reply(id_))["result"]["items"]) == count
