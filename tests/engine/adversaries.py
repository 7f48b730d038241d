"""Drafters that know the answer, and drafters that do everything a drafter must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from engine.drafters import Context
from engine.speculation import ROOT, Draft


class Scripted:
    """Guesses whatever the script says, and counts the guesses that may be judged."""

    name = "scripted"

    def __init__(self, script: Callable[[Context, int], Draft]) -> None:
        self._script = script
        self.guessed = 0

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        draft = self._script(context, limit)
        self.guessed += min(len(draft), limit) if isinstance(draft, Draft) else 0
        return draft


class FailsToPrepare(Scripted):
    """Raises after a first piece of preparation."""

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        yield
        raise RuntimeError("no index")


class SlowToPrepare(Scripted):
    """Prepares in many pieces, between which the stream can be left."""

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        yield from [None] * 50


def adversary(name: str, answers: Sequence[int], vocab: int, end: int) -> Scripted:
    """A drafter by name; `answers` is what the target itself says after the prompt."""
    return _PREPARING.get(name, Scripted)(_Scripts(answers, vocab, end).script(name))


_PREPARING = {"fails to prepare": FailsToPrepare, "slow to prepare": SlowToPrepare}


class _Scripts:
    def __init__(self, answers: Sequence[int], vocab: int, end: int) -> None:
        self._answers = list(answers)
        self._vocab = vocab
        self._end = end
        self._random = torch.Generator().manual_seed(1)

    def script(self, name: str) -> Callable[[Context, int], Draft]:
        return getattr(self, "_" + name.replace(" ", "_"))

    def _right(self, context: Context, limit: int) -> list[int]:
        return self._answers[context.position : context.position + limit]

    def _wrong(self, context: Context, limit: int) -> list[int]:
        return [(answer + 1) % self._vocab for answer in self._right(context, limit)]

    def _always_right(self, context: Context, limit: int) -> Draft:
        return Draft.chain(self._right(context, limit))

    _fails_to_prepare = _slow_to_prepare = _always_right

    def _always_wrong(self, context: Context, limit: int) -> Draft:
        return Draft.chain(self._wrong(context, limit))

    def _random_guesses(self, context: Context, limit: int) -> Draft:
        return Draft.chain(torch.randint(self._vocab, (limit,), generator=self._random).tolist())

    def _right_until_the_third(self, context: Context, limit: int) -> Draft:
        return Draft.chain([*self._right(context, limit)[:2], *self._wrong(context, limit)[2:]])

    def _too_long(self, context: Context, limit: int) -> Draft:
        return Draft.chain([*self._right(context, limit + 7), 1, 2, 3])

    def _out_of_vocabulary(self, context: Context, limit: int) -> Draft:
        return Draft.chain([*self._right(context, 1), -1, 10**9, self._vocab, -(2**40)])

    def _first_out_of_vocabulary(self, context: Context, limit: int) -> Draft:
        return Draft.chain([-1 if context.position % 2 else 10**12])

    def _empty(self, context: Context, limit: int) -> Draft:
        return Draft()

    def _always_the_end(self, context: Context, limit: int) -> Draft:
        return Draft.chain([self._end] * limit)

    def _end_after_one(self, context: Context, limit: int) -> Draft:
        return Draft.chain([*self._right(context, 1), self._end, *self._right(context, limit)])

    def _tree(self, context: Context, limit: int) -> Draft:
        """Right and wrong branches, the right one second: its rows must be moved when it is committed."""
        wrong, right = self._wrong(context, limit), self._right(context, limit)
        tokens = [token for pair in zip(wrong, right, strict=True) for token in pair]
        parents = [ROOT, ROOT, *(1 + 2 * (index // 2) for index in range(len(tokens) - 2))]
        return Draft(tuple(tokens), tuple(parents[: len(tokens)]))

    def _equal_siblings(self, context: Context, limit: int) -> Draft:
        right = self._right(context, 1)
        return Draft(tuple(right * 3), (ROOT,) * len(right * 3))

    def _raises(self, context: Context, limit: int) -> Draft:
        raise RuntimeError("no guess")

    def _raises_later(self, context: Context, limit: int) -> Draft:
        if context.position > 2:
            raise RuntimeError("no guess any more")
        return self._always_right(context, limit)

    def _nothing_at_all(self, context: Context, limit: int) -> Draft:
        return None  # type: ignore[return-value]

    def _nan_law(self, context: Context, limit: int) -> Draft:
        return self._with_law(context, limit, torch.full((1, self._vocab), torch.nan))

    def _negative_law(self, context: Context, limit: int) -> Draft:
        law = torch.full((1, self._vocab), 2 / self._vocab)
        law[0, 0] -= 1
        return self._with_law(context, limit, law)

    def _heavy_law(self, context: Context, limit: int) -> Draft:
        return self._with_law(context, limit, torch.ones(1, self._vocab))

    def _narrow_law(self, context: Context, limit: int) -> Draft:
        return self._with_law(context, limit, torch.full((1, self._vocab - 1), 1 / (self._vocab - 1)))

    def _flat_law(self, context: Context, limit: int) -> Draft:
        tokens = self._wrong(context, limit)
        return Draft.chain(tokens, torch.full((self._vocab,), 1 / self._vocab))

    def _with_law(self, context: Context, limit: int, law: torch.Tensor) -> Draft:
        tokens = self._wrong(context, limit)
        return Draft.chain(tokens, law.expand(len(tokens), -1))


# Certain guesses of every quality: they never change a token, greedy or sampled.
CERTAIN = (
    "always right",
    "always wrong",
    "random guesses",
    "right until the third",
    "too long",
    "out of vocabulary",
    "first out of vocabulary",
    "empty",
    "always the end",
    "end after one",
    "tree",
    "equal siblings",
    "slow to prepare",
)
# These are left out after their first fault; what comes is plain decoding.
FAULTY = (
    "raises",
    "raises later",
    "fails to prepare",
    "nothing at all",
    "nan law",
    "negative law",
    "heavy law",
    "narrow law",
    "flat law",
)
