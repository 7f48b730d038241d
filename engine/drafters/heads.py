"""Heads that guess several tokens at once from the target's last hidden state.

Blockwise parallel decoding (Stern et al., 2018) reads each head's likeliest token, one branch; Medusa (Cai et al.,
2024) reads the likeliest few of each as a tree. They are the same heads. The first guess of a cycle is that of head 0:
the token behind the one that the target has said last, which its hidden state does not know yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.drafters import Context
from engine.drafters.guess_tree import GuessTree, Node
from engine.drafters.trained import require_shapes
from engine.model import CachedModel
from engine.speculation import Draft

_LEAST = 0.01  # probability of a branch, with all before it
_CHAIN, _TREE = 1, 4  # tokens of each head


def shift(hidden: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The hidden state that each head thinks the target will have: a residual layer, one for each head.

    hidden: [n, size]; up: [heads, size, inner]; down: [heads, inner, size]. Returns [heads, n, size].
    """
    return hidden + functional.silu(hidden @ up) @ down


class Heads:
    """Trained heads beside their target; its output embedding reads what they give, for the tokens of `vocabulary`."""

    def __init__(self, tensors: Mapping[str, Tensor], target: CachedModel) -> None:
        size = target.features.keep_hidden()
        assert tensors["up"].shape[1] == size
        device = target.features.embed([0]).device
        self._up, self._down = tensors["up"].to(device), tensors["down"].to(device)
        self._ids = tensors["vocabulary"].to(device)
        self._read = target.features.reader(tensors["vocabulary"].tolist())

    @classmethod
    def load(cls, path: Path, tensors: Mapping[str, Tensor], target: CachedModel) -> Heads:
        """Raises ConfigError if they do not fit the target."""
        size = target.features.keep_hidden()
        heads, _, inner = tensors["up"].shape if "up" in tensors and tensors["up"].dim() == 3 else (0, 0, 0)
        shapes = {"up": (heads, size, inner), "down": (heads, inner, size), "vocabulary": (_count(tensors),)}
        require_shapes("heads", path, tensors, shapes, target.vocab)
        return cls(tensors, target)

    @torch.inference_mode()
    def laws(self, target: CachedModel, tokens: Sequence[int], most: int) -> list[list[tuple[int, float]]]:
        """Of each head the `most` likeliest (token, probability) behind `tokens`, the last of which the target has not
        seen yet. Nothing where the hidden state of the one before is not computed."""
        known = tokens[:-1]
        hidden = target.hidden(known, len(known) - 1) if known else None
        if hidden is None:
            return []
        law = self._read(shift(hidden.float(), self._up, self._down)[:, 0]).float().softmax(dim=-1)  # [heads, ids]
        best = law.topk(min(most, law.shape[-1]))
        guesses = zip(self._ids[best.indices].tolist(), best.values.tolist(), strict=True)
        return [list(zip(ids, values, strict=True)) for ids, values in guesses]


class HeadsDrafter:
    """Guesses of a function of the context, so certain ones. `tree`: Medusa's reading, else Stern's."""

    def __init__(self, heads: Heads, target: CachedModel, tree: bool = True) -> None:
        self.name = "heads" if tree else "blockwise"
        self._heads, self._target = heads, target
        self._most = _TREE if tree else _CHAIN

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        if not context.budget.wants(1.0, 0):
            return Draft()
        laws = self._heads.laws(self._target, context.tokens, self._most)
        if not laws:
            return Draft()
        tree = GuessTree()
        self._grow(tree.root, laws[:limit], 1.0, context)
        return tree.best(limit, context.budget, forwards=1)

    def _grow(self, node: Node, laws: list[list[tuple[int, float]]], reach: float, context: Context) -> None:
        """A head does not know what the ones before it say, so its guesses stand behind each of theirs."""
        if not laws:
            return
        for rank, (token, probability) in enumerate(laws[0]):
            there = reach * context.budget.acceptance(probability, self.name)
            if rank and there < _LEAST:
                continue
            child = node.child(token)
            child.confidences[self.name] = probability
            if there >= _LEAST or self._most == _CHAIN:
                self._grow(child, laws[1:], there, context)


def _count(tensors: Mapping[str, Tensor]) -> int:
    return tensors["vocabulary"].numel() if "vocabulary" in tensors else 0
