"""Online speculative decoding (Liu et al., 2023): the draft model learns from what the target made of its guesses.

It learns in micro-steps, between which a keystroke finds the engine free. What was learned is tried on the latest
lessons, which were held back, and takes the place of what there was only if it agrees with the target more often there.
No output can change its law by it: guesses are judged by the law that they are drawn from, whatever that is.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.adaptation.lessons import Lesson, Lessons
from engine.adaptation.llama import Llama
from engine.embedded import Int8Weight

log = logging.getLogger(__name__)

Weights = Mapping[str, Tensor | Int8Weight]

_NEW = 16  # lessons since the last round that make another worth its while
_LEAST = 24  # lessons in all
_HELD_BACK = 0.25  # of the lessons, the latest
_PASSES = 4  # over the others
_BATCH = 4  # lessons a step of the optimizer
_RATE = 1e-4  # 3e-4 learned one idiom as well and ordinary code worse
_SURE = 1.64  # standard errors: chance gives a change as good in one round of twenty


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round: of `places` in the held-back lessons, where the likeliest token of the draft was the target's, with the
    weights there were and with those learned."""

    places: int
    before: int
    after: int
    kept: bool

    def __str__(self) -> str:
        what = "kept" if self.kept else "left out"
        return f"the draft agrees with the target in {self.before} → {self.after} of {self.places} places: {what}"


class Learner:
    """The draft's own weights, what they become, and the lessons. `use` puts weights in the draft's place; `live` are
    those that are there at first. One thread at a time."""

    def __init__(self, config: Any, live: Weights, use: Callable[[Weights, Outcome], None]) -> None:
        self.lessons = Lessons()
        self.outcomes: list[Outcome] = []
        self._llama = Llama(config)
        self._live = live
        self._use = use
        self._done = 0  # `lessons.seen` at the last round
        self._round: Iterator[None] | None = None
        torch.optim.AdamW([torch.zeros(1)])  # imports what it needs: over a second, and a keystroke would wait for it

    def step(self) -> bool:
        """A micro-step; False if there is nothing to learn at present. A fault ends the round, and nothing else."""
        if self._round is None:
            if self.lessons.seen - self._done < _NEW or len(self.lessons.all()) < _LEAST:
                return False
            self._done = self.lessons.seen
            self._round = self._learn(self.lessons.all())
        try:
            next(self._round)
        except StopIteration:
            self._round = None
        except Exception as error:
            log.warning("a round of learning failed (%s)", type(error).__name__)
            log.debug("a round of learning failed", exc_info=error)
            self._round = None
        return True

    def _learn(self, lessons: list[Lesson]) -> Iterator[None]:
        """One round, a micro-step between any two yields."""
        held_back = lessons[-math.ceil(_HELD_BACK * len(lessons)) :]
        learned = {name: weight.clone().requires_grad_() for name, weight in _floats(self._live).items()}
        yield
        yield from self._train(learned, lessons[: -len(held_back)])
        stored = _stored(learned, self._live)
        yield
        before, after = list[bool](), list[bool]()
        for weights, agreed in ((self._live, before), (stored, after)):
            floats = _floats(weights)
            for lesson in held_back:
                agreed += self._agrees(floats, lesson)
                yield
        outcome = Outcome(len(before), sum(before), sum(after), _better(before, after))
        self.outcomes.append(outcome)
        log.info("%s", outcome)
        if outcome.kept:
            yield
            self._live = stored
            self._use(stored, outcome)

    def _train(self, weights: dict[str, Tensor], lessons: list[Lesson]) -> Iterator[None]:
        optimizer = torch.optim.AdamW(weights.values(), lr=_RATE, weight_decay=0.0)
        rng = random.Random(0)
        for _ in range(_PASSES):
            for place, lesson in enumerate(rng.sample(lessons, len(lessons)), 1):
                loss = self._loss(weights, lesson) / _BATCH
                yield
                loss.backward()  # type: ignore[no-untyped-call]
                yield
                if place % _BATCH == 0:
                    torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    yield

    def _loss(self, weights: Mapping[str, Tensor], lesson: Lesson) -> Tensor:
        """The cross-entropy to the target's laws, and what is missing of the overlap, which is the acceptance."""
        ids, p = lesson.laws()
        q = self._llama.logits(weights, lesson.tokens, len(ids)).log_softmax(dim=-1).gather(-1, ids)
        return (-p * q).sum(dim=-1).mean() + 1 - torch.minimum(p, q.exp()).sum(dim=-1).mean()

    @torch.no_grad()
    def _agrees(self, weights: Mapping[str, Tensor], lesson: Lesson) -> list[bool]:
        ids, _ = lesson.laws()
        return (self._llama.logits(weights, lesson.tokens, len(ids)).argmax(dim=-1) == ids[:, 0]).tolist()


def _better(before: list[bool], after: list[bool]) -> bool:
    """The sign test over the places where the two differ (McNemar, 1947)."""
    won = sum(now and not then for then, now in zip(before, after, strict=True))
    lost = sum(then and not now for then, now in zip(before, after, strict=True))
    return won - lost > _SURE * math.sqrt(won + lost)


def _floats(weights: Weights) -> dict[str, Tensor]:
    return {
        name: weight.dequantised() if isinstance(weight, Int8Weight) else weight for name, weight in weights.items()
    }


@torch.no_grad()
def _stored(weights: Mapping[str, Tensor], like: Weights) -> dict[str, Tensor | Int8Weight]:
    """In the types of `like`: int8 with its scales, which grow where a row outgrows them."""
    stored = dict[str, Tensor | Int8Weight]()
    for name, weight in weights.items():
        original = like[name]
        if isinstance(original, Int8Weight):
            scales = torch.maximum(original.scales, weight.detach().abs().amax(dim=-1) / 127)
            stored[name] = Int8Weight((weight.detach() / scales[:, None]).round().to(torch.int8), scales)
        else:
            stored[name] = weight.detach().clone()
    return stored
