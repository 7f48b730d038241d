"""The classic draft: a small model of the same tokenizer runs ahead, one token a forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from engine.drafters import Context
from engine.model import CachedModel
from engine.sampling import draw, warp
from engine.speculation import Draft


class SmallModelDrafter:
    """A chain from the draft model's own law, warped like the target's, so that p/q can be judged.

    It ends early only at a token of `end_tokens`, which stays in the draft: to drop a guess because of what it is
    would bend the law it was drawn from.
    """

    name = "model"

    def __init__(self, model: CachedModel, end_tokens: frozenset[int], chunk: int = 512) -> None:
        self._model = model
        self._end_tokens = end_tokens
        self._chunk = chunk

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        if len(prompt) <= self._model.window:
            yield from self._model.prefill(prompt, self._chunk)

    def propose(self, context: Context, limit: int) -> Draft:
        tokens, laws = list(context.tokens), []
        for position in range(context.position, context.position + limit):
            if len(tokens) > self._model.window:
                break
            q = warp(self._model.logits(tokens), context.sampling)[0]
            tokens.append(draw(q, context.noise.at(position).draft))
            laws.append(q)
            if tokens[-1] in self._end_tokens:
                break
        guesses = tokens[len(context.tokens) :]
        # An argmax is a function of the context: a certain guess, which needs no q.
        return Draft.chain(guesses, torch.stack(laws) if laws and not context.sampling.greedy else None)
