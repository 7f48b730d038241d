"""Trains an EAGLE head: the next feature and, above all, what the target reads from it (Li et al., 2024).

A second pass feeds the head its own guesses, as it will be when it drafts (training-time test, EAGLE-3, Li et al.,
2025).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.drafters import eagle, trained
from engine.model import CachedModel
from engine.training.examples import Examples
from engine.training.features import Example, Features, unembedding

VOCABULARY = 4096  # commonest tokens that it can guess
_BATCH = 2  # examples a step
_REGRESSION = 0.1  # weight of the distance to the true feature, in units of its size


class EagleRecipe:
    """Parameters in float32 on the target's device."""

    rate = 1e-3

    def __init__(self, target: CachedModel, examples: Examples, identity: str, name: str, steps: int) -> None:
        self._target = target
        self._features = Features(target, examples, steps * _BATCH)
        size = self._features.size
        self._vocabulary = examples.vocabulary(min(VOCABULARY, target.vocab))
        self._unembedding = unembedding(target, size, self._vocabulary)
        self._identity, self._name = identity, name
        random, device = torch.Generator().manual_seed(0), self._unembedding.device
        self.parameters: dict[str, Tensor] = {}
        for key, shape in eagle.shapes(size, 2 * size).items():
            matrix = key in eagle.MATRICES
            start = torch.randn(shape, generator=random) * shape[-1] ** -0.5 if matrix else torch.ones(shape)
            self.parameters[key] = start.to(device).requires_grad_()
        first = self._features.turn(0).features
        with torch.no_grad():  # what comes out has the size of a feature from the start
            self.parameters["norm_out"].copy_(first.square().mean(dim=0).sqrt())

    def loss(self, step: int) -> tuple[Tensor, float]:
        total, right = torch.zeros((), device=self._unembedding.device), 0.0
        for place in range(_BATCH):
            example = self._features.turn(step * _BATCH + place)
            loss, share = self._of(example)
            total, right = total + loss / _BATCH, right + share / _BATCH
        return total, right

    def _of(self, example: Example) -> tuple[Tensor, float]:
        tokens, features = example
        inputs, wanted = features[:-1], features[1:]
        embedded = self._target.features.embed(tokens[1:]).float().clone()
        with torch.no_grad():
            law = (wanted @ self._unembedding).softmax(dim=-1)
        row = torch.arange(len(inputs), device=inputs.device)
        visible = (row <= row[:, None]) & (row > row[:, None] - eagle.SPAN)
        first, _ = eagle.layer(self.parameters, embedded, inputs, row, None, visible)
        fed_back = torch.cat([inputs[:1], first[:-1]])
        second, _ = eagle.layer(self.parameters, embedded, fed_back, row, None, visible)
        loss, right = torch.zeros((), device=inputs.device), 0.0
        for guessed in (first, second):
            read = (guessed @ self._unembedding).log_softmax(dim=-1)
            distance = functional.smooth_l1_loss(guessed, wanted) / wanted.abs().mean()
            loss = loss - (law * read).sum(dim=-1).mean() + _REGRESSION * distance
            right += float((law.argmax(-1) == read.argmax(-1)).float().mean()) / 2
        return loss, right

    def write(self, out: Path) -> None:
        ids = torch.tensor(self._vocabulary, dtype=torch.int32)
        trained.write("eagle", out, self._identity, self._name, {**self.parameters, "vocabulary": ids})
