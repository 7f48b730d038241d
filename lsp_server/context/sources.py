"""Where pieces of other files come from: definitions of what is imported, the places visited last, other open files.

Pure, but for the files it is given to read: from a view of the editor to candidates, the most useful first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from lsp_server.context import grammar
from lsp_server.context.chunks import Chunk, around, names, resemblance, windows
from lsp_server.context.definitions import Definition, definitions
from lsp_server.context.imports import Imported, imports, resolve
from lsp_server.context.recent import SIZE, Place
from lsp_server.context.text import normalised
from lsp_server.context.workspace import Files, Workspace, local_path, showable

Source = Literal["definitions", "recent", "open-files"]
SOURCES: tuple[Source, ...] = get_args(Source)

_NEAR = 60  # lines around the cursor that say what is wanted
_IMPORTS_REACH = 64_000  # characters from the document's beginning in which imports are looked for
_MOST_FILES = 24  # imported, of one document
_MOST_OPEN = 16
_LINE = 40  # characters that a line may be taken to have
_ALIKE = 0.5  # a chunk that resembles the text at the cursor this much says nothing new
_RELATED = 0.04  # one that resembles it less has nothing to do with it


@dataclass(frozen=True, slots=True)
class Open:
    """An open document's lines at one moment."""

    uri: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class View:
    """What the editor shows: the document to complete with its cursor's line, the others, the places visited last."""

    current: Open
    line: int
    others: Sequence[Open]
    recent: Sequence[Place]
    workspace: Workspace
    sources: frozenset[Source]
    longest: int  # characters of one piece


@dataclass(frozen=True, slots=True)
class Piece:
    """A text of another file. `key` says which text it is, whatever it has become since."""

    key: tuple[Source, str, int]
    uri: str
    path: str
    text: str


def candidates(view: View, files: Files) -> list[Piece]:
    """The pieces that may help at the cursor, the most useful first; none of a file that must not be shown."""
    near = normalised("".join(around(view.current.lines, view.line, _NEAR)[1]))
    here = names(near)
    allows = cache(view.workspace.allows)
    found = list(_definitions(view, names(near, shortest=1), files)) if "definitions" in view.sources else []
    chunks = list(_recent(view, allows)) if "recent" in view.sources else []
    if "open-files" in view.sources:
        chunks += _open_files(view, here, allows)
    found += _distinct(chunks, here, view.workspace)
    found.sort(key=lambda scored: -scored[0])
    return [piece for _, piece in found]


def _definitions(view: View, used_here: frozenset[str], files: Files) -> Iterator[tuple[float, Piece]]:
    """One piece a file: the heads of those of its definitions that are used near the cursor."""
    path = local_path(view.current.uri)
    language = grammar.language(view.current.uri)
    if path is None or not language:
        return
    texts = {local_path(other.uri): other for other in view.others}
    start = normalised("".join(view.current.lines))[:_IMPORTS_REACH]
    found = resolve(imports(start, language), path, view.workspace.roots, language, Path.is_file)
    for imported in found[:_MOST_FILES]:
        text = _current_text(imported.path, texts, view.workspace, files)
        if text is None:
            continue
        used = _used(text, grammar.language(imported.path.name), imported, used_here)
        heads = _joined(used, view.longest)
        if heads:
            uri = imported.path.as_uri()
            yield 1.0 + len(used) / 100, Piece(("definitions", uri, 0), uri, view.workspace.path(uri), heads)


def _current_text(path: Path, others: Mapping[Path | None, Open], workspace: Workspace, files: Files) -> str | None:
    """As the editor has it, or as it is on disk."""
    other = others.get(path)
    if other is None:
        return files.read(path, workspace)
    return normalised("".join(other.lines)) if workspace.allows(other.uri) and showable(other.lines) else None


def _used(text: str, language: str, imported: Imported, here: frozenset[str]) -> list[Definition]:
    wanted = here | {there for local, there in imported.names.items() if local in here}
    if not language:
        return []
    return [each for each in definitions(text, language) if each.name in wanted]


def _joined(found: Sequence[Definition], longest: int) -> str:
    """As many heads as there is room for."""
    text = ""
    for each in found:
        if len(text) + len(each.head) + 1 <= longest:
            text += each.head.rstrip() + "\n"
    return text


def _recent(view: View, allows: Callable[[str], bool]) -> Iterator[tuple[float, Source, Chunk]]:
    """Of the other documents. The later, the more useful."""
    for age, place in enumerate(reversed(view.recent)):
        if place.uri != view.current.uri and showable(place.lines) and allows(place.uri):
            yield 0.5 / (1 + age), "recent", _middle(place, view.longest)


def _open_files(
    view: View, here: frozenset[str], allows: Callable[[str], bool]
) -> Iterator[tuple[float, Source, Chunk]]:
    """Of each open file the lines that have most in common with those around the cursor."""
    for other in view.others[:_MOST_OPEN]:
        if not allows(other.uri) or not showable(other.lines):
            continue
        size = _lines(view.longest)
        cut = (_chunk(other.uri, first, lines, view.longest) for first, lines in windows(other.lines, size))
        scored = [(resemblance(chunk.names, here), chunk) for chunk in cut]
        likeness, best = max(scored, key=lambda each: each[0])
        if likeness >= _RELATED:
            yield 0.5 * likeness, "open-files", best


def _lines(longest: int) -> int:
    """How many there is room for in a piece."""
    return min(max(longest // _LINE, 4), SIZE)


def _middle(place: Place, longest: int) -> Chunk:
    """The lines nearest to where the user was."""
    size = _lines(longest)
    first, lines = around(place.lines, place.line - place.first, size)
    return _chunk(place.uri, place.first + first, lines, longest)


def _chunk(uri: str, first: int, lines: Sequence[str], longest: int) -> Chunk:
    text = normalised("".join(lines)).strip("\n")
    return Chunk(uri, first, text if len(text) <= longest else text[:longest].rpartition("\n")[0])


def _distinct(
    chunks: Sequence[tuple[float, Source, Chunk]], here: frozenset[str], workspace: Workspace
) -> Iterator[tuple[float, Piece]]:
    """Without what resembles the text at the cursor or a more useful chunk."""
    seen = [here]
    for score, source, chunk in sorted(chunks, key=lambda each: -each[0]):
        if chunk.names and all(resemblance(chunk.names, other) < _ALIKE for other in seen):
            seen.append(chunk.names)
            yield score, Piece((source, chunk.uri, chunk.first), chunk.uri, workspace.path(chunk.uri), chunk.text)
