"""How long to wait after a keystroke before asking the model (`debounceMs: "auto"`)."""

from __future__ import annotations

_PAUSE_S = 1.0  # a longer gap is thinking, not typing
_WEIGHT = 0.3  # of the newest measurement
_MARGIN = 1.2  # of a typical gap: the next key should have come by then
_MOST_S = 0.15


class Pace:
    """One client's rhythm of keys and the engine's of answers, as moving averages.

    If answers come faster than keys, nothing is gained by waiting. If keys come faster, the answer to this one would
    be thrown away by the next: then it waits until the next would have come.
    """

    def __init__(self) -> None:
        self._asked_s: float | None = None
        self._gap_s: float | None = None
        self._answer_s: float | None = None

    def delay(self, now_s: float) -> float:
        """An automatic request comes at `now_s` (any clock); how many seconds to hold it back."""
        gap, self._asked_s = None if self._asked_s is None else now_s - self._asked_s, now_s
        if gap is None or gap > _PAUSE_S:
            return 0.0
        self._gap_s = _average(self._gap_s, gap)
        if self._answer_s is None or self._answer_s <= self._gap_s:
            return 0.0
        return min(_MARGIN * self._gap_s, _MOST_S)

    def answered(self, seconds: float) -> None:
        """From the engine's start on a request to the first text."""
        self._answer_s = _average(self._answer_s, seconds)


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
