"""Guesses from the text at hand: where the last tokens stood before, what followed them may follow again.

Prompt lookup decoding (Saxena, 2023) generalised: the longest match instead of a fixed n-gram, the text behind the
cursor, other files and the last completions as well as the text before it, and several branches instead of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.drafters import Context
from engine.drafters.guess_tree import Continuation, likeliest
from engine.drafters.surroundings import Markers
from engine.speculation import Draft

_LONGEST_MATCH = 16  # tokens; a longer one does not make the continuation any more certain
_SHORTEST_MATCH = 2
_CANDIDATES = 8  # places whose continuations are merged


class LookupDrafter:
    """Looks the end of the text up in the text itself; every propose is a few scans of an integer array.

    `recent` are other texts to look in, each as ids.
    """

    name = "lookup"

    def __init__(self, markers: Markers, recent: Sequence[Sequence[int]] = ()) -> None:
        self._markers = markers
        self._recent = recent
        self._text = np.empty(0, dtype=np.int32)
        self._length = 0
        self._emitted = 0

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        self._length = self._emitted = 0
        for part in (*self._recent, *self._markers.parts(prompt)):
            # Parts are set apart by numbers that are no ids, each used once, so that no match reaches across.
            self._append([-1 - self._length, *part])
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        return likeliest(self, context, limit)

    def continuations(self, context: Context, length: int, ahead: Sequence[int] = ()) -> list[Continuation]:
        """What followed the last tokens before, the longest matches first; `ahead` are guesses to take as said."""
        self._append(context.tokens[context.prompt_length + self._emitted :])
        self._emitted = context.position
        known = self._length
        self._append(ahead)
        found = []
        for place, match in self._places():
            following = self._text[place : min(place + length, self._length)]
            ends = np.flatnonzero(following < 0)
            guess = following[: ends[0]] if len(ends) else following
            found.append(Continuation(match, guess.tolist()))
        self._length = known
        return found

    def _places(self) -> list[tuple[int, int]]:
        """(index of the token that followed, length of the match), longest first, then latest first."""
        text = self._text[: self._length]
        if self._length < _SHORTEST_MATCH + 1:
            return []
        places = np.flatnonzero(text[:-1] == text[-1])  # ends of a match of one token
        found: list[tuple[int, int]] = []
        levels: list[NDArray[np.intp]] = [places]
        for back in range(1, _LONGEST_MATCH):
            places = places[places >= back]
            places = places[text[places - back] == text[-1 - back]]
            if not len(places):
                break
            levels.append(places)
        for match in range(len(levels), _SHORTEST_MATCH - 1, -1):
            for end in levels[match - 1][::-1].tolist():
                if len(found) == _CANDIDATES:
                    return found
                if all(end + 1 != place for place, _ in found):
                    found.append((end + 1, match))
        return found

    def _append(self, tokens: Sequence[int]) -> None:
        needed = self._length + len(tokens)
        if needed > len(self._text):
            self._text = np.concatenate([self._text, np.empty(max(needed, 1024), dtype=np.int32)])
        self._text[self._length : needed] = tokens
        self._length = needed
