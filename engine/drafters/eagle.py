"""An autoregressive head on the target's features: EAGLE (Li et al., 2024), its tree grown by confidence (EAGLE-2).

A feature is the target's last hidden state. From the feature of a token and the token behind it the head, one decoder
layer, guesses the next feature, which the target's own output embedding reads. Its guesses are fed back to it, several
branches at once, the likeliest first. It sees the last SPAN tokens only, so a cold start costs little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from engine.drafters import Context
from engine.drafters.guess_tree import GuessTree, Node
from engine.drafters.trained import require_shapes
from engine.embedded import Int8Weight
from engine.fast_llama import product
from engine.model import CachedModel
from engine.speculation import Draft

SPAN = 64  # tokens that the head looks back
HEAD_SIZE = 64
_EPS, _BASE = 1e-6, 10_000.0
_DEPTH = 6  # guesses in a row
_WIDTH = 4  # branches that go on, and tokens of each
_KEPT = 4 * SPAN  # features at least, for texts that go back a little
_LEAST = 0.02  # probability of a branch, with all before it

MATRICES = ("join", "qkv", "output", "gate_up", "down")
NORMS = ("norm_token", "norm_feature", "norm_attention", "norm_mlp", "norm_out")


def shapes(size: int, inner: int) -> dict[str, tuple[int, ...]]:
    """Of the parameters, for features of `size` and a layer with `inner` units."""
    heads = max(size // HEAD_SIZE, 1) * HEAD_SIZE
    matrices = {
        "join": (size, 2 * size),
        "qkv": (3 * heads, size),
        "output": (size, heads),
        "gate_up": (2 * inner, size),
        "down": (size, inner),
    }
    return {**matrices, **dict.fromkeys(NORMS, (size,))}


class Past(NamedTuple):
    """Keys and values of tokens, [heads, tokens, HEAD_SIZE] each."""

    keys: Tensor
    values: Tensor

    def and_then(self, more: Past) -> Past:
        return Past(torch.cat([self.keys, more.keys], 1), torch.cat([self.values, more.values], 1))


def layer(
    weights: Mapping[str, Tensor | Int8Weight],
    embedded: Tensor,
    features: Tensor,
    positions: Tensor,
    past: Past | None,
    visible: Tensor,
) -> tuple[Tensor, Past]:
    """The next features [n, size], from tokens' embeddings and the features before them, both [n, size].

    positions: [n]. visible: [n, tokens in past + n]. Returns the keys and values of the n as well.
    """
    size = features.shape[-1]

    def norm(x: Tensor, name: str) -> Tensor:
        weight = weights[name]
        assert isinstance(weight, Tensor)
        return functional.rms_norm(x, (size,), weight, _EPS)

    x = product(torch.cat([norm(embedded, "norm_token"), norm(features, "norm_feature")], -1), weights["join"])
    qkv = product(norm(x, "norm_attention"), weights["qkv"]).view(len(x), 3, -1, HEAD_SIZE).permute(1, 2, 0, 3)
    own = Past(_turned(qkv[1], positions), qkv[2])
    seen = own if past is None else past.and_then(own)
    mixed = functional.scaled_dot_product_attention(
        _turned(qkv[0], positions)[None], seen.keys[None], seen.values[None], attn_mask=visible
    )
    x = x + product(mixed[0].transpose(0, 1).reshape(len(x), -1), weights["output"])
    gate, up = product(norm(x, "norm_mlp"), weights["gate_up"]).chunk(2, dim=-1)
    x = x + product(functional.silu(gate) * up, weights["down"])
    return norm(x, "norm_out"), own


def _turned(x: Tensor, positions: Tensor) -> Tensor:
    """RoPE (Su et al., 2021) in the half-split form. x: [heads, n, HEAD_SIZE]"""
    frequencies = _BASE ** (-torch.arange(0, HEAD_SIZE, 2, device=x.device).float() / HEAD_SIZE)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class _Branch(NamedTuple):
    """A guessed token that goes on: its node in the tree, how likely it is, the feature before it, what it sees."""

    node: Node
    token: int
    reach: float
    feature: Tensor  # [size]
    path: tuple[int, ...]  # rows of this cycle's guesses that stand before it


class EagleHead:
    """A trained head beside its target. Invariant: `_past` and `_last` belong to the first `len(_tokens) - 1` features
    of `_tokens`, from `_first` on; a new text keeps what it shares with the last one."""

    def __init__(self, tensors: Mapping[str, Tensor], target: CachedModel) -> None:
        target.features.keep_hidden()
        self._embed = target.features.embed
        self._device = self._embed([0]).device
        quantised = self._device.type == "cpu"  # a head is as wide as its target: its bytes are what it costs
        self._weights: dict[str, Tensor | Int8Weight] = {
            name: Int8Weight.of(tensors[name]) if quantised else tensors[name].to(self._device) for name in MATRICES
        }
        self._weights |= {name: tensors[name].to(self._device) for name in NORMS}
        self._ids = tensors["vocabulary"].to(self._device)
        self._read = target.features.reader(tensors["vocabulary"].tolist())
        self._tokens: list[int] = []
        self._first = 0
        self._past: Past | None = None
        self._last: Tensor | None = None  # [size], the feature guessed for the last token

    @classmethod
    def load(cls, path: Path, tensors: Mapping[str, Tensor], target: CachedModel) -> EagleHead:
        """Raises ConfigError if it does not fit the target."""
        size = target.features.keep_hidden()
        inner = tensors["down"].shape[-1] if "down" in tensors and tensors["down"].dim() == 2 else 0
        count = tensors["vocabulary"].numel() if "vocabulary" in tensors else 0
        require_shapes("eagle", path, tensors, {**shapes(size, inner), "vocabulary": (count,)}, target.vocab)
        return cls(tensors, target)

    @torch.inference_mode()
    def follow(self, target: CachedModel, tokens: Sequence[int]) -> bool:
        """Takes the features of all of `tokens` but the last in; whether they are computed."""
        if len(tokens) < 2:
            return False
        known = len(tokens) - 1
        kept = self._shared(tokens)
        first, start = self._first, self._first + kept
        if known - start > SPAN or kept < min(SPAN // 2, known - 1):
            first = start = max(known - SPAN, 0)
        features = target.hidden(tokens[:-1], start)
        if features is None:
            return False
        if len(features):
            past = self._kept_past(start - first)
            before = start - first
            row = torch.arange(len(features), device=self._device)[:, None] + before
            column = torch.arange(before + len(features), device=self._device)[None]
            visible = (column <= row) & (column > row - SPAN)
            out, own = self._step(tokens[start + 1 :], features, torch.arange(start, known), past, visible)
            past = own if past is None else past.and_then(own)
            drop = known - first - _KEPT if known - first > 2 * _KEPT else 0
            self._past, self._last = Past(past.keys[:, drop:], past.values[:, drop:]), out[-1]
            self._first, self._tokens = first + drop, list(tokens)
        return True

    @torch.inference_mode()
    def grow(self, tree: GuessTree, context: Context, limit: int, name: str) -> int:
        """Lets the head continue the tree behind the tokens that it followed; returns its forwards, the one over what
        is new included."""
        assert self._past is not None
        assert self._last is not None
        known = len(self._tokens) - 1
        leaves = self._children(self._last[None], [1.0], [()], [tree.root], context, name)
        past, seen, forwards = self._past, self._past.keys.shape[1], 1
        for depth in range(1, min(limit, _DEPTH)):
            leaves = sorted(leaves, key=lambda leaf: -leaf.reach)[:_WIDTH]
            if not leaves or leaves[0].reach < _LEAST or not context.budget.wants(leaves[0].reach, depth):
                break
            guessed = past.keys.shape[1] - seen
            visible = torch.zeros(len(leaves), seen + guessed + len(leaves), dtype=torch.bool)
            visible[:, max(seen - SPAN + depth, 0) : seen] = True
            for row, leaf in enumerate(leaves):
                visible[row, [seen + place for place in leaf.path]] = True
                visible[row, seen + guessed + row] = True
            positions = torch.full((len(leaves),), known + depth - 1)
            features = torch.stack([leaf.feature for leaf in leaves])
            out, own = self._step([leaf.token for leaf in leaves], features, positions, past, visible.to(self._device))
            past = past.and_then(own)
            forwards += 1
            paths = [(*leaf.path, guessed + row) for row, leaf in enumerate(leaves)]
            reaches, nodes = [leaf.reach for leaf in leaves], [leaf.node for leaf in leaves]
            leaves = self._children(out, reaches, paths, nodes, context, name)
        return forwards

    def _children(
        self,
        features: Tensor,
        reaches: Sequence[float],
        paths: Sequence[tuple[int, ...]],
        nodes: Sequence[Node],
        context: Context,
        name: str,
    ) -> list[_Branch]:
        """The likeliest tokens behind each feature, put into the tree."""
        best = self._read(features).float().softmax(dim=-1).topk(min(_WIDTH, len(self._ids)))
        tokens, probabilities = self._ids[best.indices].tolist(), best.values.tolist()
        found = []
        for row, (node, reach) in enumerate(zip(nodes, reaches, strict=True)):
            for token, probability in zip(tokens[row], probabilities[row], strict=True):
                child = node.child(token)
                child.confidences[name] = probability
                there = reach * context.budget.acceptance(probability, name)
                found.append(_Branch(child, token, there, features[row], paths[row]))
        return found

    def _step(
        self, tokens: Sequence[int], features: Tensor, positions: Tensor, past: Past | None, visible: Tensor
    ) -> tuple[Tensor, Past]:
        embedded = self._embed(tokens).float()
        return layer(self._weights, embedded, features.float(), positions.to(self._device), past, visible)

    def _shared(self, tokens: Sequence[int]) -> int:
        """How many features from `_first` on stay: those whose token, and the token behind it, are the same."""
        pairs = enumerate(zip(self._tokens, tokens, strict=False))
        both = min(len(self._tokens), len(tokens))
        same = next((place for place, (ours, theirs) in pairs if ours != theirs), both)
        if same == len(tokens) < len(self._tokens):
            same -= 1  # what was guessed last is of a longer text
        return max(same - 1 - self._first, 0)

    def _kept_past(self, count: int) -> Past | None:
        if self._past is None or not count:
            return None
        return Past(self._past.keys[:, :count], self._past.values[:, :count])


class EagleDrafter:
    """A tree of certain guesses: what the head finds likely is a function of the context."""

    name = "eagle"

    def __init__(self, head: EagleHead, target: CachedModel) -> None:
        self._head, self._target = head, target

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        if not context.budget.wants(1.0, 0) or not self._head.follow(self._target, context.tokens):
            return Draft()
        tree = GuessTree()
        forwards = self._head.grow(tree, context, limit, self.name)
        return tree.best(limit, context.budget, forwards)
