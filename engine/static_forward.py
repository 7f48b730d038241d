"""The forward of a joined model over static buffers: all that changes from call to call is data on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from engine.joined import Joined, Layer, Norm
from engine.runners import tree_layout


class Place(NamedTuple):
    """Where a forward's tokens stand, the same for all layers."""

    rows: Tensor  # [width] int64, of keys and values
    cos: Tensor  # [width, 1, head size]
    sin: Tensor
    seen: int  # rows that are looked at; those that a token must not see are masked
    mask: Tensor | None  # [1, 1, group * width, seen], added to the scores; None: each sees all up to itself


def layout(width: int, count: int, parents: Sequence[int] | None) -> Tensor:
    """Of `count` tokens, the last of which may be a tree, filled up to `width`: the positions behind the first, and
    which sees which, side by side: [width, 1 + width] int64."""
    positions, visible = tree_layout(width, 0, ()) if parents is None else tree_layout(count, 0, parents)
    arranged = torch.eye(width, dtype=torch.int64)  # a token that sees nothing gives no number
    arranged[: len(positions), : len(positions)] = visible
    ahead = torch.zeros(width, 1, dtype=torch.int64)
    ahead[: len(positions), 0] = positions
    return torch.cat([ahead, arranged], dim=1)


def place(model: Joined, start: Tensor, ahead: Tensor, sees: Tensor, seen: int) -> Place:
    """start: [1] int64. ahead: [width] int64, positions behind it. sees: [width, width] bool."""
    width = len(ahead)
    rows = start + torch.arange(width, device=start.device)
    positions = (start + ahead).clamp(max=model.window - 1)  # what only fills up may stand behind the end
    columns = torch.arange(seen, device=start.device)
    visible = (columns < start).expand(width, seen).index_copy(1, rows, sees)
    if model.span is not None:
        visible = visible & (positions[:, None] - columns.index_copy(0, rows, positions) < model.span)
    hidden = torch.zeros(width, seen, dtype=model.embedding.dtype, device=start.device)
    mask = hidden.masked_fill_(~visible, float("-inf")).repeat(model.heads // model.kv_heads, 1)
    return Place(rows, model.cos[positions][:, None], model.sin[positions][:, None], seen, mask[None, None])


def place_of_chain(model: Joined, start: int, width: int) -> Place:
    """Of many tokens, each of which sees all before it."""
    device, end = model.embedding.device, start + width
    if model.span is not None:
        ahead = torch.arange(width, device=device)
        return place(model, torch.full((1,), start, device=device), ahead, ahead[:, None] >= ahead, end)
    rows = torch.arange(start, end, device=device)
    return Place(rows, model.cos[start:end, None], model.sin[start:end, None], end, None)


def hidden_states(model: Joined, tokens: Tensor, here: Place, rows: Tensor) -> Tensor:
    """The last hidden states after the last norm, [width, size]; puts keys and values into `rows`, [layers, 2,
    kv heads, capacity, head size]."""
    hidden = _times(model.embedding[tokens], model.embedding_factor)
    for layer, kept in zip(model.layers, rows, strict=True):
        hidden = layer.output.add_to(hidden, _attended(model, layer, hidden, here, kept), model.residual_factor)
        hidden = layer.down.add_to(hidden, _fed(model, layer, hidden), model.residual_factor)
    return model.norm(hidden)


def logits(model: Joined, hidden: Tensor, out: Tensor | None = None) -> Tensor:
    """[width, vocab], into `out` if there is one."""
    product = torch.mm(hidden, model.head.T, out=out)
    return product if model.logits_divisor == 1 else product.div_(model.logits_divisor)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


def _attended(model: Joined, layer: Layer, hidden: Tensor, here: Place, rows: Tensor) -> Tensor:
    width = len(hidden)
    qkv = layer.qkv(layer.attention_norm(hidden)).view(width, -1, model.head_size)
    queries, keys, values = torch.split(qkv, [model.heads, model.kv_heads, model.kv_heads], dim=1)
    queries, keys = _normed(queries, layer.query_norm), _normed(keys, layer.key_norm)
    rows[0].index_copy_(1, here.rows, _turned(keys, here).transpose(0, 1))
    rows[1].index_copy_(1, here.rows, values.transpose(0, 1))
    queries = _turned(queries, here).transpose(0, 1)  # [heads, width, head size]
    keys, values = rows[:, :, : here.seen]
    if here.mask is None:
        return _causal(model, queries, keys, values)
    # The heads that share keys, one behind another: [kv heads, group * width, head size].
    queries = queries.reshape(model.kv_heads, -1, model.head_size)
    mixed = functional.scaled_dot_product_attention(
        queries[None], keys[None], values[None], attn_mask=here.mask, scale=model.attention_factor
    )
    return mixed.reshape(model.heads, width, model.head_size).transpose(0, 1).reshape(width, -1)


def _causal(model: Joined, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    group = model.heads // model.kv_heads
    mixed = functional.scaled_dot_product_attention(
        queries[None],
        keys.repeat_interleave(group, dim=0)[None],
        values.repeat_interleave(group, dim=0)[None],
        attn_mask=causal_lower_right(queries.shape[1], keys.shape[1]),
        scale=model.attention_factor,
    )
    return mixed[0].transpose(0, 1).reshape(queries.shape[1], -1)


def _fed(model: Joined, layer: Layer, hidden: Tensor) -> Tensor:
    inner = layer.up(layer.mlp_norm(hidden))
    if not model.gated:
        return model.activation(inner)
    gate, up = inner.chunk(2, dim=-1)
    return model.activation(gate) * up


def _normed(heads: Tensor, norm: Norm | None) -> Tensor:
    return heads if norm is None else norm(heads)


def _turned(x: Tensor, here: Place) -> Tensor:
    """Rotary embedding (Su et al., 2021) in the half-split form of Llama. x: [width, heads, head size]."""
    first, second = x.chunk(2, dim=-1)
    return x * here.cos + torch.cat((-second, first), dim=-1) * here.sin
