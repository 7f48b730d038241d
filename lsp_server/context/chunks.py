"""Pieces of text and how much they resemble each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines of a file, with `\\n` for line ends; `first` is the number of their first, from 0."""

    uri: str
    first: int
    text: str
    names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", names(self.text))


def names(text: str, shortest: int = 3) -> frozenset[str]:
    """Identifiers and words of so many letters or more; short ones are in every text."""
    return frozenset(name for name in _NAME.findall(text) if len(name) >= shortest)


def resemblance(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's: the share of names that both have, 0 to 1. Two empty ones have nothing in common."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def around(lines: Sequence[str], line: int, size: int) -> tuple[int, Sequence[str]]:
    """The `size` lines (or all) with `line` in their middle as far as the text reaches, and the first's number."""
    first = max(min(line - size // 2, len(lines) - size), 0)
    return first, lines[first : first + size]


def windows(lines: Sequence[str], size: int) -> Iterable[tuple[int, Sequence[str]]]:
    """`size` lines at a time, each window half a window after the last. A fixed grid, so that the same text gives the
    same windows wherever the cursor is."""
    step = max(size // 2, 1)
    for first in range(0, max(len(lines) - step, 1), step):
        yield first, lines[first : first + size]
