"""The pieces of other files that one client's requests carry. A request takes what is there and waits for nothing:
pieces are looked for in a thread, when the user comes to a document, moves far in it, edits its imports, or when
something has changed elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lsp_server.background import off_loop
from lsp_server.context.recent import Place, Recent
from lsp_server.context.selection import select
from lsp_server.context.sources import SOURCES, Open, Piece, Source, View, candidates
from lsp_server.context.workspace import Files, Workspace
from lsp_server.documents import Document, Documents, Edit

_log = logging.getLogger(__name__)

MOST = 8  # pieces in one request
FAR = 16  # lines the cursor may move before other pieces may be of more use
QUIET_S = 0.4  # after the last edit of an import, before it is followed
_KEPT = 16  # documents whose pieces are remembered, and open documents that are looked at
_MOST_LINES = 20_000  # of an open document that is looked at
_IMPORT = re.compile(r"^\s*(?:import|from|export|use|mod|#\s*include|(?:const|let|var)\b.*\brequire\b)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of which kind, and how much: `most` pieces, `budget` characters together."""

    sources: frozenset[Source]
    most: int
    budget: int
    workspace: Workspace

    @property
    def longest(self) -> int:
        """Characters of one piece."""
        return min(max(self.budget // 2, 300), 1600)

    def view(self, current: Open, line: int, others: Sequence[Open] = (), recent: Sequence[Place] = ()) -> View:
        """What the editor shows, to look for such pieces in."""
        return View(current, line, others, recent, self.workspace, self.sources, self.longest)

    @classmethod
    def within(cls, prompt: int, most: int, open_files: bool, workspace: Workspace) -> Wanted:
        """For prompts of `prompt` tokens, of which other files get a quarter; three characters a token are sure to fit
        nearly always, and the engine leaves out what does not."""
        sources = SOURCES if open_files else ("definitions",)
        return cls(frozenset(sources), most, max(3 * prompt // 4 - 80, 0), workspace)


@dataclass(slots=True)
class _Selection:
    """What one document's requests carry, and what it was chosen for."""

    pieces: tuple[Piece, ...] = ()
    line: int = -FAR
    version: int = -1
    wanted: Wanted | None = None
    import_edited: float | None = None  # when, in the event loop's time


class Live:
    """Belongs to the event loop; what it starts in a thread works on copies."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._recent = Recent()
        self._files = Files()
        self._selections: OrderedDict[str, _Selection] = OrderedDict()
        self._refreshing: asyncio.Task[None] | None = None

    def opened(self, document: Document) -> None:
        self._recent.touched(document.uri, document.lines, 0)

    def edited(self, document: Document, edits: Iterable[Edit]) -> None:
        for edit in edits:
            last = min(edit.start.line + edit.text.count("\n"), len(document.lines) - 1)
            self._recent.touched(document.uri, document.lines, last)
            selection = self._selections.get(document.uri)
            if selection is not None and any(map(_IMPORT.match, document.lines[edit.start.line : last + 1])):
                selection.import_edited = asyncio.get_running_loop().time()

    def closed(self, uri: str) -> None:
        self._selections.pop(uri, None)

    def pieces(self, document: Document, line: int, wanted: Wanted) -> tuple[Piece, ...]:
        """For a request at this line, those that are known. Starts looking for better ones if there may be any."""
        if not wanted.most or not wanted.workspace.folders:
            return ()
        selection = self._selection(document.uri)
        if selection.wanted != wanted:  # what might be shown under other settings may not under these
            selection.pieces, selection.version, selection.wanted = (), -1, wanted
        if self._refreshing is None and self._stale(document, line, selection):
            self._refreshing = asyncio.create_task(self._refresh(document, line, wanted, selection))
            self._refreshing.add_done_callback(self._refreshed)
        return selection.pieces

    def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    def _selection(self, uri: str) -> _Selection:
        selection = self._selections.setdefault(uri, _Selection())
        self._selections.move_to_end(uri)
        while len(self._selections) > _KEPT:
            self._selections.popitem(last=False)
        return selection

    def _stale(self, document: Document, line: int, selection: _Selection) -> bool:
        """A keystroke in the document itself changes none of this, so it costs nothing and moves nothing."""
        if selection.version != self._recent.version(document.uri) or abs(line - selection.line) >= FAR:
            return True
        edited = selection.import_edited
        return edited is not None and asyncio.get_running_loop().time() - edited >= QUIET_S

    async def _refresh(self, document: Document, line: int, wanted: Wanted, selection: _Selection) -> None:
        view = self._view(document, line, wanted)
        selection.line, selection.version, selection.import_edited = line, self._recent.version(document.uri), None
        ranked = await off_loop(lambda: candidates(view, self._files))
        if selection.wanted == wanted:
            selection.pieces = select(selection.pieces, ranked, wanted.most, wanted.budget)

    def _view(self, document: Document, line: int, wanted: Wanted) -> View:
        others = [other for other in self._documents if other is not document and len(other.lines) <= _MOST_LINES]
        shown = [Open(other.uri, tuple(other.lines)) for other in others[-_KEPT:]]
        current = Open(document.uri, tuple(document.lines))
        return wanted.view(current, line, shown, tuple(self._recent.places))

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("other files could not be looked at (%s)", type(error).__name__)  # its message might quote them
            _log.debug("other files could not be looked at", exc_info=error)
