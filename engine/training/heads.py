"""Trains multi-token heads: each learns what the target itself thinks comes so many tokens later (self-distillation,
as in Medusa, Cai et al., 2024; the target does not change)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from engine.drafters import trained
from engine.drafters.heads import shift
from engine.model import CachedModel
from engine.training.examples import Examples
from engine.training.features import Features, unembedding

HEADS = 4
VOCABULARY = 4096  # commonest tokens that heads can guess
_BATCH = 4  # examples a step
_POSITIONS = 256  # of a step, drawn from its examples
_FADE = 0.8  # of a head's weight in the loss, with each: later guesses are reached more rarely


class HeadsRecipe:
    """Parameters in float32 on the target's device."""

    rate = 2e-3

    def __init__(self, target: CachedModel, examples: Examples, identity: str, name: str, steps: int) -> None:
        self._features = Features(target, examples, steps * _BATCH)
        size = self._features.size
        self._vocabulary = examples.vocabulary(min(VOCABULARY, target.vocab))
        self._unembedding = unembedding(target, size, self._vocabulary)
        self._identity, self._name = identity, name
        random = torch.Generator().manual_seed(0)
        up = torch.randn(HEADS, size, size // 2, generator=random) * size**-0.5
        device = self._unembedding.device
        self.parameters: dict[str, Tensor] = {
            "up": up.to(device).requires_grad_(),
            "down": torch.zeros(HEADS, size // 2, size, device=device).requires_grad_(),
        }

    def loss(self, step: int) -> tuple[Tensor, float]:
        rows = [self._features.turn(step * _BATCH + place).features for place in range(_BATCH)]
        here = torch.cat([row[: max(len(row) - HEADS, 0)] for row in rows])
        later = [
            torch.cat([row[head : head + max(len(row) - HEADS, 0)] for row in rows]) for head in range(1, HEADS + 1)
        ]
        chosen = torch.randperm(len(here), generator=torch.Generator().manual_seed(step))[:_POSITIONS]
        shifted = shift(here[chosen], self.parameters["up"], self.parameters["down"])
        total, right = torch.zeros((), device=here.device), 0.0
        for head in range(HEADS):
            with torch.no_grad():
                wanted = (later[head][chosen] @ self._unembedding).softmax(dim=-1)
            guess = (shifted[head] @ self._unembedding).log_softmax(dim=-1)
            total = total - _FADE**head * (wanted * guess).sum(dim=-1).mean()
            right += float((wanted.argmax(-1) == guess.argmax(-1)).float().mean()) / HEADS
        return total, right

    def write(self, out: Path) -> None:
        ids = torch.tensor(self._vocabulary, dtype=torch.int32)
        trained.write("heads", out, self._identity, self._name, {**self.parameters, "vocabulary": ids})
