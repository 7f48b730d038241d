"""The classic draft: a small model of the same tokenizer runs ahead, one token a forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.drafters import Context
from engine.model import CachedModel
from engine.runners import ChainRunner
from engine.sampling import draw, warp
from engine.speculation import Draft

CHAINS = (1, 2, 3, 4, 6, 8)  # the lengths of chains on a device, where each is recorded


class SmallModelDrafter:
    """A chain from the draft model's own law, warped like the target's, so that p/q can be judged.

    It ends early at a token of `end_tokens`, which stays in the draft, and where the budget says so by the laws alone:
    to drop a guess because of what it is would bend the law it was drawn from. Where the model draws on a device
    without the host's knowing of it, how many it draws depends on no law either, and it goes on behind an end.
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

    @property
    def draws_away(self) -> bool:
        """Whether its guesses are drawn on a device, so that looking at them means waiting."""
        return isinstance(self._model.runner, ChainRunner)

    def propose(self, context: Context, limit: int) -> Draft:
        if most := self._model.chain_length(context.tokens, min(limit, CHAINS[-1])):
            return self._chain(context, most)
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

    def _chain(self, context: Context, most: int) -> Draft:
        wanted, reach = 0, 1.0
        while wanted < most and context.budget.wants(reach, wanted):
            wanted += 1
            reach *= context.budget.typical
        length = max((length for length in CHAINS if length <= wanted), default=0)
        if not length:
            return Draft()
        uniforms = [context.noise.at(context.position + guess).draft for guess in range(length)]
        return self._model.chain(context.tokens, uniforms, context.sampling)
