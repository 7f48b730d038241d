"""The classic draft: a small model of the same tokenizer runs ahead, one token a forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.drafters import Context
from engine.model import CachedModel
from engine.sampling import draw, warp
from engine.speculation import Draft


class SmallModelDrafter:
    """A chain from the draft model's own law, warped like the target's, so that p/q can be judged.

    It ends early at a token of `end_tokens`, which stays in the draft, and where the budget says so by the laws alone:
    to drop a guess because of what it is would bend the law it was drawn from.
    """

    name = "model"

    def __init__(self, model: CachedModel, end_tokens: frozenset[int], chunk: int = 512) -> None:
        self._model = model
        self._end_tokens = end_tokens
        self._chunk = chunk

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        if len(prompt) <= self._model.window:
            yield from self._model.prefill(prompt, self._chunk)

    def law(self, context: Context, ahead: Sequence[int]) -> Tensor | None:
        """What it thinks follows the context and then `ahead`, [vocab]; None at the end of its window."""
        tokens = [*context.tokens, *ahead]
        return self._model.logits(tokens)[0].float().softmax(dim=-1) if len(tokens) <= self._model.window else None

    def propose(self, context: Context, limit: int) -> Draft:
        tokens, laws, confidences = list(context.tokens), list[Tensor](), list[float]()
        budget, reach, forwards, passed_over = context.budget, 1.0, 0, None
        while len(laws) < limit and len(tokens) <= self._model.window and budget.wants(reach, len(laws)):
            logits = self._model.logits(tokens)
            forwards += 1
            q = warp(logits, context.sampling)[0]
            confidence = float(logits[0].float().softmax(dim=-1).max() if context.sampling.greedy else q.max())
            reach *= budget.acceptance(confidence)
            if not budget.keeps(reach, len(laws)):
                passed_over = confidence
                break
            tokens.append(draw(q, context.noise.at(context.position + len(laws)).draft))
            laws.append(q)
            confidences.append(confidence)
            if tokens[-1] in self._end_tokens:
                break
        guesses = tokens[len(context.tokens) :]
        # An argmax is a function of the context: a certain guess, which needs no q.
        probs = torch.stack(laws) if laws and not context.sampling.greedy else None
        return Draft.chain(guesses, probs, confidences, forwards, passed_over)
