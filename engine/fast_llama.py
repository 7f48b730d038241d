"""A lean forward for Llama-shaped models: the same mathematics as transformers' without its cost per layer.

On two slow CPU cores transformers spends as long around the products of a one-token forward as in them. Here the
keys and values stand in one static buffer, q/k/v and gate/up are one product each, and weights that are stored as
int8 are multiplied as int8 (bfloat16 activations, float32 sums), so a token reads a quarter of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from engine.embedded import Int8Weight
from engine.runners import Rows, tree_layout

# Above this width a product is bound by arithmetic, and dequantising once to float32 is cheaper (AVX2 and AVX-512).
_INT8_WIDTH = 24

# MKL sums in another order below four queries and below 384 rows, and activations in bfloat16 make of a difference in
# the last bit one that decides a near tie. Filled up to these, a token's logits are the same to the bit alone and in a
# chain of guesses (as far as _INT8_WIDTH), and so is the text; in a tree, guesses that a token does not see stand
# between those it sees, and its sums are grouped in another way. Costs 0.9 of 9.6 ms at width 1, nothing at width 4.
_LEAST_QUERIES = 4
_LEAST_ROWS = 384


class FastLlamaRunner:
    """Runs a `LlamaForCausalLM` without biases, from its configuration and its parameters by transformers' names.

    weights: float tensors, or Int8Weight for matrices. same_at_any_width: see _LEAST_QUERIES. The activations around
    the products and the keys and values are float32 on a CPU: its attention is no faster in bfloat16, and exact sums
    cost nothing there.
    """

    takes_trees = True

    def __init__(self, config: Any, weights: Mapping[str, Tensor | Int8Weight], same_at_any_width: bool = True) -> None:
        self._depth: int = config.num_hidden_layers
        self.take(weights)
        self._least = (_LEAST_QUERIES, _LEAST_ROWS) if same_at_any_width else (1, 1)
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._size = config.head_dim
        self._eps = config.rms_norm_eps
        self.window: int = config.max_position_embeddings
        self._cos, self._sin = rotary_tables(config)
        shape = (config.num_hidden_layers, 2, self._kv_heads, self.window, self._size)
        self._rows = torch.zeros(shape)  # [layer, key/value, head, position, size]
        self._hidden: Tensor | None = None  # [position, hidden]

    def take(self, weights: Mapping[str, Tensor | Int8Weight]) -> None:
        """Other weights of the same shapes. What stands in the rows is of those before."""
        self._layers = [_Layer(weights, f"model.layers.{index}.") for index in range(self._depth)]
        self._embedding = weights["model.embed_tokens.weight"]
        self._head = weights.get("lm_head.weight", self._embedding)
        self._norm = _plain(weights["model.norm.weight"])

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        place = self._place(len(tokens), start, parents)
        hidden = _embed(self._embedding, tokens)  # [width, hidden]
        for layer, rows in zip(self._layers, self._rows, strict=True):
            hidden = self._feed(layer, self._look(layer, rows, hidden, place))
        return product(self._last(hidden, start, tail), self._head)

    @torch.inference_mode()
    def fill(self, tokens: Sequence[int], start: int) -> Iterator[None]:
        place = self._place(len(tokens), start, None)
        hidden = _embed(self._embedding, tokens)
        for layer, rows in zip(self._layers, self._rows, strict=True):
            hidden = self._look(layer, rows, hidden, place)
            yield
            hidden = self._feed(layer, hidden)
            yield
        self._last(hidden, start, 1)

    @torch.inference_mode()
    def move_rows(self, sources: Sequence[int], start: int) -> None:
        self._rows[:, :, :, start : start + len(sources)] = self._rows[:, :, :, list(sources)]
        if self._hidden is not None:
            self._hidden[start : start + len(sources)] = self._hidden[list(sources)]

    def keep_hidden(self) -> int:
        if self._hidden is None:
            self._hidden = torch.zeros(self.window, len(self._norm))
        return len(self._norm)

    def hidden(self, start: int, end: int) -> Tensor:
        assert self._hidden is not None, "keep_hidden comes first"
        return self._hidden[start:end]

    def embed(self, tokens: Sequence[int]) -> Tensor:
        return _embed(self._embedding, tokens)

    def reader(self, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
        index = torch.tensor(tokens)
        if isinstance(self._head, Int8Weight):
            rows: Tensor | Int8Weight = Int8Weight(self._head.rows[index], self._head.scales[index])
        else:
            rows = self._head[index]
        return lambda hidden: product(hidden, rows)

    @torch.inference_mode()
    def read_rows(self, start: int, end: int) -> Rows:
        kept = (self._rows,) if self._hidden is None else (self._rows, self._hidden)
        return tuple(part[..., start:end, :] for part in kept)

    @torch.inference_mode()
    def write_rows(self, rows: Rows, start: int) -> None:
        for part, copy in zip((self._rows, self._hidden), rows, strict=False):
            if part is not None:
                part[..., start : start + copy.shape[-2], :] = copy

    def _place(self, width: int, start: int, parents: Sequence[int] | None) -> _Place:
        end = start + width
        if parents is None:
            visible = torch.ones(width, end, dtype=torch.bool).tril(start)
            return _Place(start, self._cos[start:end], self._sin[start:end], self._mask(visible))
        positions, visible = tree_layout(width, start, parents)
        return _Place(start, self._cos[positions], self._sin[positions], self._mask(visible))

    def _look(self, layer: _Layer, rows: Tensor, hidden: Tensor, place: _Place) -> Tensor:
        """The first half of a layer."""
        normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.attention_norm, self._eps)
        return hidden + product(self._attend(layer, rows, normed, place), layer.output)

    def _feed(self, layer: _Layer, hidden: Tensor) -> Tensor:
        """The second."""
        normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.mlp_norm, self._eps)
        gate, up = product(normed, layer.gate_up).chunk(2, dim=-1)
        return hidden + product(functional.silu(gate) * up, layer.down)

    def _last(self, hidden: Tensor, start: int, tail: int) -> Tensor:
        """The last hidden states of the last `tail`; of all, where they are kept."""
        kept = hidden[-tail:] if self._hidden is None else hidden
        normed = functional.rms_norm(kept, kept.shape[-1:], self._norm, self._eps)
        if self._hidden is not None:
            self._hidden[start : start + len(hidden)] = normed
        return normed[-tail:]

    def _mask(self, visible: Tensor) -> Tensor:
        """What to add to the scores, [queries, rows].

        The queries of the heads that share keys stand one behind another; behind them, those that only fill up.
        """
        width, end = visible.shape
        queries = self._heads // self._kv_heads * width
        shape = max(queries, self._least[0]), min(max(end, self._least[1]), self.window)
        mask = torch.full(shape, float("-inf"))
        mask[:queries, :end].masked_fill_(visible.repeat(self._heads // self._kv_heads, 1), 0.0)
        mask[queries:] = 0.0  # a softmax over nothing is not a number
        return mask

    def _attend(self, layer: _Layer, rows: Tensor, x: Tensor, place: _Place) -> Tensor:
        start, mask, width, end = place.start, place.mask, len(x), place.start + len(x)
        qkv = product(x, layer.qkv).view(width, self._heads + 2 * self._kv_heads, self._size).transpose(0, 1)
        turned = rotate(qkv[: self._heads + self._kv_heads], place.cos, place.sin)
        rows[0, :, start:end] = turned[self._heads :]
        rows[1, :, start:end] = qkv[self._heads + self._kv_heads :]
        # [kv heads, group * width, size]: one product for all the heads that share keys.
        q = turned[: self._heads].reshape(self._kv_heads, -1, self._size)
        filled, seen = mask.shape
        queries = q.shape[1]
        if filled > queries:
            q = functional.pad(q, (0, 0, 0, filled - queries))
        scores = torch.baddbmm(mask, q, rows[0, :, :seen].transpose(1, 2), alpha=self._size**-0.5)
        mixed = torch.bmm(scores.softmax(dim=-1), rows[1, :, :seen])[:, :queries]
        return mixed.reshape(self._heads, width, self._size).transpose(0, 1).reshape(width, -1)


class _Place(NamedTuple):
    """Where a forward's tokens stand, the same for all layers."""

    start: int  # the row of the first
    cos: Tensor  # [width, size]
    sin: Tensor
    mask: Tensor  # see _mask


class _Layer:
    """One decoder layer's weights, the products that share an input joined into one."""

    def __init__(self, weights: Mapping[str, Tensor | Int8Weight], name: str) -> None:
        self.qkv = _joined([weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        self.output = weights[f"{name}self_attn.o_proj.weight"]
        self.gate_up = _joined([weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        self.down = weights[f"{name}mlp.down_proj.weight"]
        self.attention_norm = _plain(weights[f"{name}input_layernorm.weight"])
        self.mlp_norm = _plain(weights[f"{name}post_attention_layernorm.weight"])


def _joined(parts: Sequence[Tensor | Int8Weight]) -> Tensor | Int8Weight:
    if all(isinstance(part, Int8Weight) for part in parts):
        return Int8Weight(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))
    return torch.cat([_plain(part) for part in parts])


def _plain(weight: Tensor | Int8Weight) -> Tensor:
    return weight.dequantised() if isinstance(weight, Int8Weight) else weight


def product(x: Tensor, weight: Tensor | Int8Weight) -> Tensor:
    """x [width, in] float32 times weight [out, in], transposed: [width, out] float32."""
    if not isinstance(weight, Int8Weight):
        return functional.linear(x, weight)
    if len(x) > _INT8_WIDTH:
        return functional.linear(x, weight.dequantised())
    # The kernel takes scales in bfloat16 only; as ones, they cost no precision and the true ones follow in float32.
    unscaled = torch._weight_int8pack_mm(x.bfloat16(), weight.rows, torch.ones(len(weight.rows), dtype=torch.bfloat16))
    return unscaled.float() * weight.scales


def _embed(weight: Tensor | Int8Weight, tokens: Sequence[int]) -> Tensor:
    index = torch.tensor(tokens)
    if isinstance(weight, Int8Weight):
        return weight.rows[index] * weight.scales[index, None]
    return weight[index]


def rotary_tables(config: Any) -> tuple[Tensor, Tensor]:
    """cos and sin for every position, [window, size]: RoPE (Su et al., 2021) in the half-split form of Llama."""
    size = config.head_dim
    frequencies = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(config.max_position_embeddings).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [heads, width, size]; cos, sin: [width, size]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
