"""Notebooks: the cells of one language, in their order, around the one with the cursor."""

from __future__ import annotations

from typing import Any

import pytest
from lsp_fakes import Client, FakeEngine

from lsp_server import handshake

BOOK = "file:///w/book.ipynb"


def cell(name: str) -> str:
    return f"vscode-notebook-cell:/w/book.ipynb#{name}"


def item(name: str, text: str, language: str = "python") -> dict[str, Any]:
    return {"uri": cell(name), "languageId": language, "version": 1, "text": text}


def member(name: str, kind: int = 2) -> dict[str, Any]:
    return {"kind": kind, "document": cell(name)}


CELLS = {
    "a": ("import numpy as np\n", "python"),
    "text": ("# Results", "markdown"),
    "b": ("x = np.ones(3)", "python"),
    "sql": ("select 1", "sql"),
    "c": ("print(x)\r\ny = 1", "python"),
}


@pytest.fixture
async def book(client: Client) -> Client:
    client.notify(
        "notebookDocument/didOpen",
        notebookDocument={
            "uri": BOOK,
            "notebookType": "jupyter-notebook",
            "version": 1,
            "cells": [member(name, 1 if language == "markdown" else 2) for name, (_, language) in CELLS.items()],
        },
        cellTextDocuments=[item(name, text, language) for name, (text, language) in CELLS.items()],
    )
    return client


async def asked(client: Client, name: str, line: int, character: int) -> tuple[str, str]:
    """The text on both sides of the cursor that the engine was given."""
    client.request(f"{name}{line}{character}", cell(name), line, character)
    await client.reply(f"{name}{line}{character}")
    request = FakeEngine.made[0].requests[-1]
    assert request.path == ("book.ipynb" if name == "sql" else "book.py")
    return request.prefix, request.suffix


async def change(client: Client, **cells: Any) -> None:
    client.notify("notebookDocument/didChange", notebookDocument={"uri": BOOK, "version": 2}, change={"cells": cells})


async def test_cells_of_the_language_are_joined_in_order(book: Client) -> None:
    """Others are left out. Seen to fail with cells in reverse before the cursor."""
    assert await asked(book, "b", 0, 4) == (
        "import numpy as np\nx = ",
        "np.ones(3)\nprint(x)\ny = 1",
    )
    assert await asked(book, "c", 1, 5) == ("import numpy as np\nx = np.ones(3)\nprint(x)\ny = 1", "")
    assert await asked(book, "sql", 0, 8) == ("select 1", "")


async def test_cells_come_go_and_move(book: Client) -> None:
    """Seen to fail with `did_open` ignored."""
    await change(
        book,
        structure={
            "array": {"start": 2, "deleteCount": 1, "cells": [member("new"), member("b")]},
            "didOpen": [item("new", "n = 3")],
        },
    )
    assert (await asked(book, "c", 0, 0))[0] == "import numpy as np\nn = 3\nx = np.ones(3)\n"
    await change(
        book,
        structure={"array": {"start": 0, "deleteCount": 1}, "didClose": [{"uri": cell("a")}]},
    )
    assert (await asked(book, "c", 1, 0))[0] == "n = 3\nx = np.ones(3)\nprint(x)\n"
    book.request("gone", cell("a"), 0, 0)
    assert (await book.reply("gone"))["result"]["items"] == []


async def test_a_cells_text_changes(book: Client) -> None:
    place = {"line": 0, "character": 4}
    await change(
        book,
        textContent=[
            {
                "document": {"uri": cell("b"), "version": 2},
                "changes": [{"range": {"start": place, "end": {"line": 0, "character": 14}}, "text": "2"}],
            }
        ],
    )
    assert (await asked(book, "c", 0, 0))[0] == "import numpy as np\nx = 2\n"


async def test_a_closed_notebook_is_gone(book: Client) -> None:
    book.notify("notebookDocument/didClose", notebookDocument={"uri": BOOK}, cellTextDocuments=[])
    book.request(1, cell("b"), 0, 0)
    assert (await book.reply(1))["result"]["items"] == []


async def test_an_excluded_notebook(book: Client) -> None:
    book.notify("workspace/didChangeConfiguration", settings={"specter": {"exclude": ["*.ipynb"]}})
    await book.settle()
    book.request(1, cell("b"), 0, 0)
    assert (await book.reply(1))["result"]["items"] == []
    assert FakeEngine.made[0].requests == []


async def test_changes_to_what_was_never_opened(client: Client) -> None:
    await change(client, structure={"array": {"start": 3, "deleteCount": 9, "cells": [member("a")]}})
    await change(client, textContent=[{"document": {"uri": cell("a"), "version": 2}, "changes": []}])
    client.notify("notebookDocument/didClose", notebookDocument={"uri": BOOK}, cellTextDocuments=[])
    assert (await client.ask(1, "specter/stats"))["result"]


def test_only_clients_with_notebooks_are_told() -> None:
    def said(capabilities: Any) -> dict[str, Any]:
        return handshake.answer(handshake.read({"capabilities": capabilities}))["capabilities"]

    assert "notebookDocumentSync" not in said({})
    selector = {"notebookSelector": [{"notebook": "*"}]}
    assert said({"notebookDocument": {"synchronization": {}}})["notebookDocumentSync"] == selector
