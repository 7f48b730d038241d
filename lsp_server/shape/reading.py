"""A suggestion as far as it is there, read at its place, and what rules say of it.

A rule is a pure function of a `Reading`. It may end the text (`Stop`), or hold back what the next characters decide
upon. A rule that ends a text at some point ends every longer one there, so that what was shown stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lsp_server.shape.lexer import Lexed, lex
from lsp_server.shape.place import Place


class Stop(NamedTuple):
    """The text ends at `at`; that was certain when `seen` characters of it were there."""

    seen: int
    at: int


class Ruling(NamedTuple):
    """What a rule says: the text's end if it has come, and how much of the text is certain until then."""

    stop: Stop | None
    certain: int


class Line(NamedTuple):
    """A line of a text: its span, and whether its end has come."""

    start: int
    end: int
    text: str
    ended: bool


@dataclass(frozen=True)
class Reading:
    """A suggestion as far as it is there, at its place."""

    text: str
    place: Place

    @cached_property
    def lexed(self) -> Lexed:
        return lex(self.text, self.place.language, self.place.open)

    @cached_property
    def lines(self) -> list[Line]:
        lines, start = [], 0
        for piece in self.text.split("\n"):
            end = start + len(piece)
            lines.append(Line(start, end, piece, end < len(self.text)))
            start = end + 1
        return lines

    @cached_property
    def depths(self) -> dict[int, int]:
        """Line end -> how much the text has open there; below zero where it closed what was open before it."""
        base = len(self.place.open)
        return {at: depth - base for at, depth in self.lexed.depths.items()}

    def goes_on(self, line: Line) -> Ruling:
        """No stop; certain up to this line, which may yet end the text."""
        return Ruling(None, len(self.text[: line.start].rstrip()))

    def ends_before(self, line: Line, seen: int) -> Ruling:
        at = len(self.text[: line.start].rstrip())
        return Ruling(Stop(seen, at), at)


Rule = Callable[[Reading], Ruling]
