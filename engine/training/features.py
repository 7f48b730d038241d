"""The target's last hidden states over examples, computed once and kept while there is room."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch
from torch import Tensor

from engine.model import CachedModel
from engine.training.examples import Examples

_ROOM = 1 << 30  # bytes
_TIMES = 3  # that an example comes: its features are the dear part of a step


class Example(NamedTuple):
    """tokens: n ids. features: [n, size] float32, on the target's device."""

    tokens: list[int]
    features: Tensor


class Features:
    """Examples by their turn, of `turns` in all; each comes several times, in another order."""

    def __init__(self, target: CachedModel, examples: Examples, turns: int) -> None:
        self._target = target
        self.size = target.features.keep_hidden()
        self._examples = examples
        self._count = -(-turns // _TIMES)
        self._kept: dict[int, tuple[list[int], Tensor]] = {}
        self._room = _ROOM
        self._epoch, self._order = -1, list[int]()

    def turn(self, place: int) -> Example:
        """The example whose turn is at that place."""
        epoch = place // self._count
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self._count))
            random.Random(epoch).shuffle(self._order)
        return self._of(self._order[place % self._count])

    def _of(self, number: int) -> Example:
        if number not in self._kept:
            tokens = self._examples.tokens(number)
            self._target.forget()
            self._target.logits(tokens)
            # In half the bytes, also where it is used at once: the same numbers whenever it comes.
            features = self._target.features.hidden(0, len(tokens)).to(torch.bfloat16)
            if (size := 2 * features.numel()) > self._room:
                return Example(tokens, features.float())
            self._room -= size
            self._kept[number] = tokens, features
        tokens, features = self._kept[number]
        return Example(tokens, features.float())


def unembedding(target: CachedModel, size: int, vocabulary: list[int]) -> Tensor:
    """What the output embedding multiplies features with, [size, len(vocabulary)] float32."""
    device = target.features.embed([0]).device
    return target.features.reader(vocabulary)(torch.eye(size, device=device)).float().clone()
