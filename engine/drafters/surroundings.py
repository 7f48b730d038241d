"""The texts that a prompt is made of, without its markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Markers:
    """Ids that set the parts of a prompt apart: all of them, and those in front of prefix, suffix and middle."""

    all: frozenset[int]
    prefix: int
    suffix: int | None = None
    middle: int | None = None

    def parts(self, prompt: Sequence[int]) -> list[list[int]]:
        """Other files, suffix, …; the text before the cursor last, with what already stands behind the middle marker:
        the completion goes on from there."""
        before_cursor = list[int]()
        part = list[int]()
        parts = [part]
        for token in prompt:
            if token not in self.all:
                part.append(token)
            elif token in (self.prefix, self.middle):
                part = before_cursor
            elif part is not before_cursor or token == self.suffix:  # others in the prefix are its header's
                part = []
                parts.append(part)
        return [*parts, before_cursor] if part is before_cursor else parts
