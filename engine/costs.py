"""What forwards cost on this machine, learned from those that were made anyway."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

_SAMPLES = 15  # the latest of each width; their median does not mind a busy moment
_ENOUGH = 3


class Costs:
    """Milliseconds of the target's forwards over 1, 2, … tokens and of one forward of the draft model.

    ratios: how many times as long as over one token a forward takes, for 1, 2, … tokens, until it was measured;
    draft_ratio: likewise for the draft model's. The unit is a plain forward until one of any width was measured.
    """

    def __init__(self, ratios: Sequence[float], draft_ratio: float) -> None:
        self._ratios = tuple(ratios)
        self._draft_ratio = draft_ratio
        self._samples: dict[int, deque[float]] = {}
        self._draft_samples: deque[float] = deque(maxlen=_SAMPLES)
        self._table = list(ratios)
        self.draft_ms = draft_ratio

    def verify(self, width: int) -> float:
        """Never less than that of a narrower one; beyond the table, as steep as its end."""
        table = self._table
        if width <= len(table):
            return table[width - 1]
        slope = table[-1] - table[-2] if len(table) > 1 else 0.0
        return table[-1] + slope * (width - len(table))

    def wider(self, count: int) -> float:
        """What the guess behind `count` others adds to the forward."""
        return self.verify(count + 2) - self.verify(count + 1)

    def took(self, width: int, verify_ms: float, forwards: int, draft_ms: float) -> None:
        """A cycle over `width` tokens, with so many forwards of the draft model."""
        if width <= len(self._ratios):
            self._samples.setdefault(width, deque(maxlen=_SAMPLES)).append(verify_ms)
        if forwards:
            self._draft_samples.append(draft_ms / forwards)
        self._learn()

    def took_together(self, width: int, ms: float, forwards: int) -> None:
        """A cycle whose guesses were not waited for by themselves: what the target's forward does not take, as far as
        that is known from others, the draft model's did."""
        if any(len(samples) >= _ENOUGH for samples in self._samples.values()):
            self._draft_samples.append(max(ms - self.verify(width), 0.0) / forwards)
            self._learn()

    def _learn(self) -> None:
        known = {
            width: statistics.median(samples) for width, samples in self._samples.items() if len(samples) >= _ENOUGH
        }
        if not known:
            return
        unit = statistics.median(ms / self._ratios[width - 1] for width, ms in known.items())
        widest = max(known)
        steepness = self._steepness(known, unit)
        dearest = 0.0
        for width, ratio in enumerate(self._ratios, 1):
            guess = unit * ratio
            if width > widest:
                guess = known[widest] + steepness * unit * (ratio - self._ratios[widest - 1])
            dearest = max(dearest, known.get(width, guess))
            self._table[width - 1] = dearest
        enough = len(self._draft_samples) >= _ENOUGH
        self.draft_ms = statistics.median(self._draft_samples) if enough else unit * self._draft_ratio

    def _steepness(self, known: dict[int, float], unit: float) -> float:
        """How much of the growth with the width that was expected was found; no more than all of it."""
        narrowest, widest = min(known), max(known)
        expected = unit * (self._ratios[widest - 1] - self._ratios[narrowest - 1])
        if expected <= 0:
            return 1.0
        return min(max((known[widest] - known[narrowest]) / expected, 0.0), 1.0)
