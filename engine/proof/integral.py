"""Code integrated over its random numbers: everything that can come of it, with its exact probability.

`verify`, and a whole cycle of the decoder, are piecewise constant in each number. Nothing here knows the acceptance
rules: the borders of the pieces are found by bisection on the code under proof, down to rounding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar, cast

from torch import Tensor

from engine.sampling import Noise
from engine.speculation import Draft, Verdict, verify

_Key = tuple[int, int, str]  # position, sibling, use
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")

_ONE = 1 - 2**-53  # the largest number that Noise gives
_RESOLUTION = 2**-50  # of a border


def verdicts(p: Tensor, draft: Draft, borders: list[float]) -> Iterator[tuple[Verdict, float]]:
    """Every verdict on a draft, piece by piece of the space of random numbers, with the probability of the piece."""
    return pieces(lambda noise: verify(p, draft, noise, position=0), borders)


def pieces(run: Callable[[Noise], Result], borders: list[float]) -> Iterator[tuple[Result, float]]:
    """What `run` gives, piece by piece of the space of the numbers that it takes, with the probability of the piece.

    Assumes that each number acts monotonically, as a threshold or through an inverse transform, and shows in what is
    given. `borders` holds those found so far, sorted, and grows: runs that share laws share borders, and to try a known
    one is cheaper.
    """

    def scripted(numbers: Sequence[float]) -> tuple[tuple[_Key, ...], Result]:
        script = _Script(numbers)
        result = run(cast(Noise, script))
        return tuple(script.asked), result

    yield from _branch(scripted, (), borders)


class _Script:
    """Stands in for Noise: gives the numbers of a script in the order in which they are asked for, then one half."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = numbers
        self.asked: list[_Key] = []

    def at(self, position: int, sibling: int = 0) -> _Asking:
        return _Asking(self, position, sibling)

    def number(self, key: _Key) -> float:
        """The same key gets the same number, as from Noise: code that uses one twice is judged by what it does."""
        if key not in self.asked:
            self.asked.append(key)
        index = self.asked.index(key)
        return self._numbers[index] if index < len(self._numbers) else 0.5


class _Asking:
    """Uniforms of which only those are drawn that are looked at."""

    def __init__(self, script: _Script, position: int, sibling: int) -> None:
        self._script, self._position, self._sibling = script, position, sibling

    def __getattr__(self, name: str) -> float:
        return self._script.number((self._position, self._sibling, name))


def _branch(
    run: Callable[[tuple[float, ...]], tuple[tuple[_Key, ...], Result]],
    numbers: tuple[float, ...],
    borders: list[float],
) -> Iterator[tuple[Result, float]]:
    """The pieces behind the numbers that are fixed already; which number comes next may depend on them."""
    asked, result = run(numbers)
    if len(asked) == len(numbers):
        yield result, 1.0
        return

    def outcome(number: float) -> tuple[tuple[_Key, ...], Result]:
        return run((*numbers, number))

    found = _borders(outcome, (0.0, outcome(0.0)), (_ONE, outcome(_ONE)), borders)
    for low, high in pairwise((0.0, *found, 1.0)):
        for result, volume in _branch(run, (*numbers, (low + high) / 2), borders):
            yield result, (high - low) * volume


def _borders(
    outcome: Callable[[float], Outcome], low: tuple[float, Outcome], high: tuple[float, Outcome], known: list[float]
) -> list[float]:
    """Where the outcome changes between two points: a known border is tried first, else the interval is halved."""
    if low[1] == high[1]:
        return []
    middle = (low[0] + high[0]) / 2
    if high[0] - low[0] <= 2.5 * _RESOLUTION:
        insort(known, middle)
        return [middle]
    inside = known[bisect_right(known, low[0] + _RESOLUTION) : bisect_left(known, high[0] - _RESOLUTION)]
    cuts = [middle]
    if inside:
        border = inside[len(inside) // 2]
        cuts = [border - _RESOLUTION, border + _RESOLUTION]
    points = [low, *((cut, outcome(cut)) for cut in cuts), high]
    return [border for left, right in pairwise(points) for border in _borders(outcome, left, right, known)]
