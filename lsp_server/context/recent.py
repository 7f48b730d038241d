"""The last places that the user edited or looked at, as chunks of their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lsp_server.context.chunks import around

SIZE = 32  # lines of a chunk
_KEPT = 16


class Place(NamedTuple):
    """Lines as they were when the user was last there, at `line` of the document; `first` is that of the lines."""

    uri: str
    line: int
    first: int
    lines: Sequence[str]


class Recent:
    """At most 16 places, the latest last; no two of one document overlap by half or more.

    `version(uri)` grows with every change outside that document: it is what a selection for it has to follow.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._changes: dict[str, int] = {}
        self._all = 0

    def touched(self, uri: str, lines: Sequence[str], line: int) -> None:
        """The user was at this line of a document that holds these lines."""
        first, text = around(lines, line, SIZE)
        self.places = [place for place in self.places if place.uri != uri or abs(place.first - first) >= SIZE // 2]
        self.places.append(Place(uri, line, first, tuple(text)))
        del self.places[:-_KEPT]
        self._count(uri)

    def forget(self, uri: str) -> None:
        self.places = [place for place in self.places if place.uri != uri]
        self._changes.pop(uri, None)
        self._all += 1

    def version(self, uri: str) -> int:
        return self._all - self._changes.get(uri, 0)

    def _count(self, uri: str) -> None:
        self._changes[uri] = self._changes.get(uri, 0) + 1
        self._all += 1
