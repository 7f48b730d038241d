"""From a hole in real code to what the server would ask the engine there. The state of the editor is made up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lsp_server import context
from lsp_server.context.live import MOST, Wanted
from lsp_server.context.recent import Place, Recent
from lsp_server.context.selection import select
from lsp_server.context.sources import SOURCES, Open, candidates
from lsp_server.context.workspace import LARGEST_FILE, Files, Workspace, local_path
from lsp_server.documents import Document, Position, split_lines
from lsp_server.settings import Settings

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.holes import Hole
    from engine.loading import LoadedPair
    from engine.request import CompletionRequest, Snippet

SUFFIXES = (".py", ".js", ".ts", ".tsx", ".mjs")
_CLOSING = ")]}:;,"
_OPEN = 3  # other files that are open beside a hole


class Case(NamedTuple):
    """A hole, the folder it is from and its class: a hole's own, or "inside"."""

    folder: Path
    kind: str
    hole: Hole


def cases(folder: Path, holes: Iterable[Hole]) -> Iterator[Case]:
    """The holes, and each rest of a line that ends with brackets once more, these closed already, as editors do."""
    for hole in holes:
        yield Case(folder, hole.kind, hole)
        middle = hole.middle.rstrip(_CLOSING)
        closed = hole.middle[len(middle) :]
        if hole.kind == "line" and middle and any(char in ")]}" for char in closed):
            yield Case(folder, "inside", replace(hole, middle=middle, suffix=closed + hole.suffix))


def request(
    pair: LoadedPair, config: EngineConfig, folder: Path, hole: Hole, setup: frozenset[str]
) -> CompletionRequest:
    """What the server would ask for at the hole."""
    root = folder.absolute()
    document = Document((root / hole.path).as_uri(), "", 0, hole.prefix + hole.suffix)
    before = hole.prefix.split("\n")
    cursor = Position(len(before) - 1, len(before[-1]))
    snippets = _snippets(pair, config, root, document, cursor.line, setup)
    request = context.build(document.snapshot(cursor), [root.as_uri()], Settings(), config, snippets=snippets)
    if "path" not in setup:
        request = replace(request, path="", repository="")
    return replace(request, deadline_s=None)


def _snippets(
    pair: LoadedPair, config: EngineConfig, root: Path, document: Document, line: int, setup: frozenset[str]
) -> list[Snippet]:
    sources = frozenset(source for source in SOURCES if source in setup)
    if not sources:
        return []
    from engine.generation import prompt_room

    workspace = Workspace((root.as_uri(),))
    wanted = replace(Wanted.within(prompt_room(pair, config.max_tokens), MOST, True, workspace), sources=sources)
    view = wanted.view(Open(document.uri, document.lines), line, *_editor(root, document))
    return context.snippets(select((), candidates(view, Files()), wanted.most, wanted.budget))


def _editor(root: Path, document: Document) -> tuple[list[Open], list[Place]]:
    """Three files of the hole's folder are open, and a place in each was visited; the same for the same hole."""
    path = local_path(document.uri)
    assert path is not None
    rng = random.Random(document.text)
    near = sorted(file for file in path.parent.iterdir() if file.suffix == path.suffix and file != path)
    others = [
        Open(file.as_uri(), split_lines(text))
        for file in rng.sample(near, min(_OPEN, len(near)))
        for text in _text(file)
    ]
    recent = Recent()
    for other in others:
        recent.touched(other.uri, other.lines, rng.randrange(len(other.lines)))
    return others, recent.places


def _text(path: Path) -> Iterable[str]:
    if path.stat().st_size <= LARGEST_FILE:
        yield path.read_text("utf-8", errors="replace")
