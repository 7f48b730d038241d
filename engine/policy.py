"""How much to guess: as long as the next guess is likely enough to pay for what it costs on this machine.

A guess that comes true saves a forward. It costs a forward of the draft model and makes the target's a token wider.
The expected gain of one more guess, the probability that all before it and it come true times the milliseconds that a
token is worth, is compared with that cost before each guess, as in dynamic draft lengths by confidence (Kangaroo, Liu
et al., 2024; EAGLE-2, Li et al., 2024) but in time instead of by a threshold. A token is worth what tokens cost at
present, which makes the ratio of tokens to time the thing that is maximised (Dinkelbach, 1967).

Every decision depends on laws and on guesses that are in the draft already, never on the guess it is about: so no law
is bent (see speculation.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.costs import Costs
from engine.speculation import ROOT, Draft

_BUCKETS = 10
_PRIOR = 4.0  # observations that a guess about acceptance is worth
_FADE = 0.98  # of what was observed of a level of confidence, with each further observation of it
_RECENT = 0.85  # likewise of all guesses in this completion; a half after four
_HORIZON = 8  # guesses; a forward may get no dearer for several widths after it has
_COSTS_FADE = 0.95
_PROBES = (6, 12, 24)  # plain cycles before a guess is tried again
_MARGIN = 0.05  # of a draft forward: what guessing must gain to begin anew after it did not pay


class Budget(Protocol):
    """What a drafter asks while it drafts, in one cycle. `reach`: the probability that everything before comes true."""

    @property
    def typical(self) -> float:
        """The probability that a guess comes true of which nothing is known yet."""
        ...

    def acceptance(self, confidence: float, source: str = "") -> float:
        """The probability that a guess comes true to which `source` gives the probability `confidence`."""
        ...

    def wants(self, reach: float, count: int) -> bool:
        """Whether to look for a guess behind `count` others."""
        ...

    def keeps(self, reach: float, count: int) -> bool:
        """Whether a guess that is reached and comes true with probability `reach` is worth its place behind `count`
        others."""
        ...

    def fits(self, reaches: Sequence[float], behind: int = 0) -> int:
        """How many of these guesses, the likeliest first and parents before children, are worth their places behind
        so many others. reaches: the probability that each comes true with all before it."""
        ...


class _Unlimited:
    """As long as the limit allows."""

    typical = 1.0

    def acceptance(self, confidence: float, source: str = "") -> float:
        return confidence

    def wants(self, reach: float, count: int) -> bool:
        return True

    def keeps(self, reach: float, count: int) -> bool:
        return True

    def fits(self, reaches: Sequence[float], behind: int = 0) -> int:
        return len(reaches)


UNLIMITED = _Unlimited()


@dataclass(slots=True)
class _Rate:
    """A fraction of successes that fades, beginning with a guess about it."""

    prior: float
    fade: float
    hits: float = 0.0
    tries: float = 0.0

    @property
    def value(self) -> float:
        return (self.hits + self.prior * _PRIOR) / (self.tries + _PRIOR)

    def add(self, hit: float) -> None:
        self.hits = self.fade * self.hits + hit
        self.tries = self.fade * self.tries + 1


@dataclass(slots=True)
class DraftPolicy:
    """What was learned of one drafter on one machine, over all completions. A Budget for the next cycle."""

    costs: Costs
    _calibration: dict[str, list[_Rate]] = field(init=False, default_factory=dict)  # by source
    _always: _Rate = field(init=False)  # acceptance of guesses, in all completions
    _lately: _Rate = field(init=False)  # in this one
    _spent_ms: float = 0.0
    _tokens: float = 0.0
    _plain_cycles: int = 0  # since a guess was last tried
    _probes: int = 0  # tries in a row that failed

    def __post_init__(self) -> None:
        self._always = _Rate(0.6, _FADE)
        self._lately = _Rate(0.6, _RECENT)

    def begin(self) -> None:
        """A new completion: what was true in the last one is less so here."""
        self._lately = _Rate(self._always.value, _RECENT)
        self._plain_cycles = self._probes = 0

    @property
    def typical(self) -> float:
        return self._lately.value

    def acceptance(self, confidence: float, source: str = "") -> float:
        return self._rate(confidence, source).value

    def wants(self, reach: float, count: int) -> bool:
        if count == 0:
            return self._probing or self._pays_at_all
        return self._gain_ms(reach, count, further=1) > 0

    def keeps(self, reach: float, count: int) -> bool:
        return reach * self._worth_ms + self._gain_ms(reach, count + 1) > self.costs.wider(count)

    def fits(self, reaches: Sequence[float], behind: int = 0) -> int:
        best, size, gain = 0.0, 0, 0.0
        before = self.costs.verify(behind + 1)
        for count, reach in enumerate(reaches, 1):
            gain += reach * self._worth_ms
            if (net := gain - (self.costs.verify(behind + count + 1) - before)) > best:
                best, size = net, count
        return size

    def learn(self, draft: Draft, path: Sequence[int], tokens: int) -> None:
        """What became of a cycle: the accepted path (indices into the draft), and how many tokens came out."""
        sources = draft.sources or [""] * len(draft)
        tried: dict[int, bool] = {}  # whether one of a judged node's children came true
        for node, (parent, confidence, source) in enumerate(
            zip(draft.parents, draft.confidences, sources, strict=False)
        ):
            if parent == ROOT or parent in path:  # the others were not judged
                self._rate(confidence, source).add(node in path)
                tried[parent] = tried.get(parent, False) or node in path
        for hit in tried.values():
            self._always.add(hit)
            self._lately.add(hit)
        if draft.passed_over is not None and len(path) == len(draft):
            self._lately.add(self.acceptance(draft.passed_over))
        spent = draft.forwards * self.costs.draft_ms + self.costs.verify(len(draft) + 1)
        self._spent_ms = _COSTS_FADE * self._spent_ms + spent
        self._tokens = _COSTS_FADE * self._tokens + tokens
        if not draft.forwards:
            self._plain_cycles += 1
        elif self._pays_at_all:
            self._plain_cycles = self._probes = 0
        else:
            self._plain_cycles, self._probes = 0, self._probes + 1

    def _rate(self, confidence: float, source: str) -> _Rate:
        if source not in self._calibration:
            rates = [_Rate((bucket + 0.5) / _BUCKETS, _FADE) for bucket in range(_BUCKETS)]
            self._calibration[source] = rates
        return self._calibration[source][min(max(int(confidence * _BUCKETS), 0), _BUCKETS - 1)]

    @property
    def _worth_ms(self) -> float:
        """What a token costs at present; never more than plain decoding's."""
        plain = self.costs.verify(1)
        return min(self._spent_ms / self._tokens, plain) if self._tokens else plain

    @property
    def _pays_at_all(self) -> bool:
        """Whether guessing gains anything; more than a little, once it was given up."""
        return self._gain_ms(1.0, 0, further=1) > (self.costs.draft_ms * _MARGIN if self._plain_cycles else 0.0)

    def _gain_ms(self, reach: float, count: int, further: int = 0) -> float:
        """The most that can be gained by `further` or more guesses behind `count` others; 0 or more if it is 0."""
        best = 0.0 if further == 0 else -math.inf
        gain, before = 0.0, self.costs.verify(count + 1)
        for more in range(1, _HORIZON + 1):
            reach *= self._lately.value
            gain += reach * self._worth_ms
            best = max(best, gain - more * self.costs.draft_ms - (self.costs.verify(count + more + 1) - before))
        return best

    @property
    def _probing(self) -> bool:
        return self._plain_cycles >= _PROBES[min(self._probes, len(_PROBES) - 1)]
