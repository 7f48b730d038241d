"""What the workspace index is given: what may be shown and nothing else, whatever the folders hold."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lsp_server.context import indexing
from lsp_server.context.indexing import Indexer, source_files
from lsp_server.context.workspace import Workspace
from lsp_server.documents import Document


class Texts:
    """An index that keeps the texts themselves."""

    def __init__(self, room: int = 10**9) -> None:
        self.held: dict[str, str] = {}
        self._room = room

    def index(self, texts: Mapping[str, str]) -> bool:
        for uri, text in texts.items():
            self.held.pop(uri, None)
            if text and sum(map(len, self.held.values())) + len(text) <= self._room:
                self.held[uri] = text
        return all(not text or uri in self.held for uri, text in texts.items())

    @property
    def names(self) -> set[str]:
        return {uri.rpartition("/")[2] for uri in self.held}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "QUIET_S", 0.05)
    monkeypatch.setattr(indexing, "_PAUSE_S", 0)


def write(folder: Path, *names: str, text: str = "a = 1\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it does not come true")


def workspace(folder: Path, *exclude: str) -> Workspace:
    return Workspace((folder.as_uri(),), exclude)


async def test_folders_of_every_kind(tmp_path: Path) -> None:
    """Secrets, links in a circle and out of the folder, a file of 500 MB, binaries, what others wrote, what cannot be
    read. Seen to fail: links to folders followed; `allows` not asked.
    """
    root, outside = tmp_path / "w", tmp_path / "outside"
    write(root, "a.py", "deep/er/b.py", "node_modules/x.js", ".git/config.py", "secrets.json", "private/c.py", "d.pem")
    write(outside, "e.py")
    (root / "circle").symlink_to(root)
    (root / "out.py").symlink_to(outside / "e.py")
    (root / "secret.py").symlink_to(root / "secrets.json")
    (root / "gone.py").symlink_to(root / "nothing")
    (root / "binary.py").write_bytes(b"\0\xff" * 100)
    with (root / "large.py").open("wb") as large:
        large.truncate(500_000_000)
    os.mkfifo(root / "pipe.py")
    (root / "closed").mkdir(mode=0)
    index = Texts()
    indexer = Indexer(index, list)
    indexer.restart(workspace(root, "private/"))
    await until(lambda: len(index.held) >= 2)
    await asyncio.sleep(0.1)
    assert index.names == {"a.py", "b.py"}
    assert [path.name for path in source_files((root,))].count("a.py") == 1
    indexer.close()
    await until(lambda: not index.held)


async def test_an_open_document_counts_as_the_editor_has_it(tmp_path: Path) -> None:
    """Seen to fail: the file on disk in its place; a closed one forgotten, or kept as it was typed."""
    write(tmp_path, "a.py", "b.py")
    document = Document((tmp_path / "a.py").as_uri(), "python", 1, "typed\r\n")
    index, opened = Texts(), [document]
    indexer = Indexer(index, lambda: list(opened))
    indexer.restart(workspace(tmp_path))
    await until(lambda: len(index.held) == 2)
    assert index.held[document.uri] == "typed\n"
    document.lines[:] = ["more\n", ""]
    indexer.edited(document.uri)
    await until(lambda: index.held[document.uri] == "more\n")
    opened.clear()
    indexer.edited(document.uri)
    await until(lambda: index.held[document.uri] == "a = 1\n")
    (tmp_path / "b.py").unlink()
    indexer.edited((tmp_path / "b.py").as_uri())
    await until(lambda: index.names == {"a.py"})
    indexer.close()


async def test_what_is_excluded_later_goes_at_once(tmp_path: Path) -> None:
    """Even while the folders are still read. Seen to fail: nothing taken out before the new ones are read."""
    write(tmp_path, *(f"{number}.py" for number in range(300)), "private/a.py")
    index = Texts()
    indexer = Indexer(index, list)
    indexer.restart(workspace(tmp_path))
    indexer.restart(workspace(tmp_path, "private/", "1*.py"))
    await until(lambda: "299.py" in index.names)
    await asyncio.sleep(0.1)
    assert len(index.held) == 300 - 111
    assert not any(name.startswith("1") or name == "a.py" for name in index.names)
    indexer.restart(None)
    await until(lambda: not index.held)


def test_a_reader_that_was_stopped_gives_nothing_more() -> None:
    """It may hold what is excluded by now. Seen to fail: `stopped` looked at by the reader only."""
    index, stopped = Texts(), threading.Event()
    indexer = Indexer(index, list)
    assert indexer._give({"file:///a.py": "a"}, stopped)
    stopped.set()
    assert indexer._give({"file:///b.py": "b"}, stopped)
    assert index.names == {"a.py"}


async def test_a_full_index_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, *(f"{number}.py" for number in range(9)), text="x" * 900 + "\n")
    indexer = Indexer(Texts(room=2000), list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "_BATCH", 500)
        indexer.restart(workspace(tmp_path))
        await until(lambda: bool(caplog.messages))
        await asyncio.sleep(0.1)
    assert caplog.messages == ["the workspace index is full; files not read yet give no guesses"]
    indexer.close()


def test_a_million_files_are_not_all_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_MOST_ENTRIES", 50)
    write(tmp_path, *(f"{number}.py" for number in range(100)))
    assert len(list(source_files((tmp_path,)))) == 50
    assert list(source_files((tmp_path / "not there",))) == []
