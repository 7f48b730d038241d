"""Keeps the engine's workspace index in step with what may be shown: files of the workspace folders, and open documents
as they are in the editor. Everything slow runs in a thread; a request waits for none of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lsp_server.background import off_loop
from lsp_server.context.text import normalised
from lsp_server.context.workspace import Files, Workspace, local_path, showable
from lsp_server.documents import Document

_log = logging.getLogger(__name__)

QUIET_S = 2.0  # without an edit, before open documents are indexed anew
_MOST_FILES = 20_000  # read of one client's folders
_MOST_ENTRIES = 400_000  # names looked at
_BATCH = 200_000  # characters given to the index at once
_PAUSE_S = 0.002  # after each file: completions come first
# Where others' code and what is made from one's own is kept.
_SKIPPED = frozenset(
    ("node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target", "vendor", "bower_components")
)
# Kinds of files that people write code in, or text about it.
_LANGUAGES = """
py pyi js jsx ts tsx mjs cjs vue svelte rs go java kt scala c h cc cpp hpp cs rb php swift lua sh bash ps1 pl r jl hs ml
ex exs erl clj dart sql html css scss less md rst toml yaml yml json ini cfg cmake tf proto nix zig
"""
_SUFFIXES = frozenset("." + suffix for suffix in _LANGUAGES.split())


class Index(Protocol):
    """What keeps the texts, by uri; an empty text is a removal. For any thread."""

    def index(self, texts: Mapping[str, str]) -> bool: ...


class Indexer:
    """One client's part of the index. Belongs to the event loop."""

    def __init__(self, index: Index, open_documents: Callable[[], list[Document]]) -> None:
        self._index = index
        self._open_documents = open_documents
        self._edited: set[str] = set()
        self._given: set[str] = set()  # uris in the index
        self._giving = threading.Lock()
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def restart(self, workspace: Workspace | None) -> None:
        """Index these folders from the beginning; None: take everything out."""
        self._stopped.set()
        self._stopped = threading.Event()
        before, self._task = self._task, asyncio.create_task(self._run(self._task, workspace, self._stopped))
        if before is not None:
            before.cancel()
        self._task.add_done_callback(_report)

    def edited(self, uri: str) -> None:
        """Opened, changed or closed."""
        self._edited.add(uri)

    def close(self) -> None:
        """The client is gone, and its files with it."""
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()
        threading.Thread(target=self._take_all_out, name="specter-background", daemon=True).start()

    async def _run(
        self, before: asyncio.Task[None] | None, workspace: Workspace | None, stopped: threading.Event
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        await off_loop(self._take_all_out)
        if workspace is None:
            return
        opened = {document.uri for document in self._open_documents()}
        self._edited |= opened
        await self._index_open(workspace, stopped)
        await off_loop(lambda: self._crawl(workspace, opened, stopped))
        while True:
            await asyncio.sleep(QUIET_S)
            await self._index_open(workspace, stopped)

    async def _index_open(self, workspace: Workspace, stopped: threading.Event) -> None:
        """The documents that were edited, as they are in the editor; those that were closed, as they are on disk."""
        uris, self._edited = self._edited, set()
        if not uris:
            return
        lines = {document.uri: tuple(document.lines) for document in self._open_documents() if document.uri in uris}

        def update() -> None:
            texts = dict.fromkeys(uris, "")
            for uri in uris:
                if uri not in lines:
                    path = local_path(uri)
                    texts[uri] = (Files().read(path, workspace) if path is not None else None) or ""
                elif workspace.allows(uri) and showable(lines[uri]):
                    texts[uri] = normalised("".join(lines[uri]))
            self._give(texts, stopped)

        await off_loop(update)

    def _crawl(self, workspace: Workspace, opened: Collection[str], stopped: threading.Event) -> None:
        files, batch, size = Files(), dict[str, str](), 0
        for count, path in enumerate(source_files(workspace.roots)):
            if count == _MOST_FILES:
                _log.warning("the workspace has more than %d files; the others give no guesses", _MOST_FILES)
                break
            uri, text = path.as_uri(), files.read(path, workspace)
            if stopped.wait(_PAUSE_S):
                return
            if text and uri not in opened and uri not in self._edited:
                batch[uri] = text
                size += len(text)
            if size >= _BATCH:
                if not self._give(batch, stopped):
                    _log.warning("the workspace index is full; files not read yet give no guesses")
                    return
                batch, size = {}, 0
        self._give(batch, stopped)

    def _give(self, texts: Mapping[str, str], stopped: threading.Event) -> bool:
        """Whether all had room; nothing once it is stopped, for other files may be allowed then."""
        with self._giving:
            if stopped.is_set() or not texts:
                return True
            self._given |= texts.keys()
            return self._index.index(texts)

    def _take_all_out(self) -> None:
        with self._giving:
            if self._given:
                self._index.index(dict.fromkeys(self._given, ""))
            self._given = set()


def source_files(roots: tuple[Path, ...]) -> Iterator[Path]:
    """Files to read below the folders, nearer ones first. Links to folders are not followed, so none leads in a circle;
    what cannot be read is passed over."""
    folders, looked_at = list(roots), 0
    while folders:
        folder = folders.pop(0)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    looked_at += 1
                    if looked_at > _MOST_ENTRIES:
                        return
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            folders.append(Path(entry.path))
                    elif Path(entry.name).suffix.lower() in _SUFFIXES:
                        yield Path(entry.path)
        except OSError:
            continue


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the workspace could not be indexed (%s)", type(error).__name__)  # its message might quote a text
        _log.debug("the workspace could not be indexed", exc_info=error)
