"""The forward of a Llama-shaped model as a function of its weights, with gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from engine.fast_llama import rotary_tables, rotate


class Llama:
    """A `LlamaForCausalLM` without biases and with a tied head, by its configuration; it has no weights of its own."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._cos, self._sin = rotary_tables(config)

    def logits(self, weights: Mapping[str, Tensor], tokens: Sequence[int], count: int) -> Tensor:
        """After each of the last `count` tokens: [count, vocab]. weights: float32, by transformers' names."""
        hidden = weights["model.embed_tokens.weight"][torch.tensor(tokens)]
        for index in range(self._config.num_hidden_layers):
            hidden = self._layer(weights, f"model.layers.{index}.", hidden)
        return functional.linear(
            self._norm(hidden[-count:], weights["model.norm.weight"]), weights["model.embed_tokens.weight"]
        )

    def _layer(self, weights: Mapping[str, Tensor], name: str, hidden: Tensor) -> Tensor:
        """hidden: [width, size]"""
        normed = self._norm(hidden, weights[f"{name}input_layernorm.weight"])
        query, key, value = (self._heads(normed, weights[f"{name}self_attn.{part}_proj.weight"]) for part in "qkv")
        rotation = self._cos[: len(hidden)], self._sin[: len(hidden)]
        mixed = functional.scaled_dot_product_attention(
            rotate(query, *rotation)[None], rotate(key, *rotation)[None], value[None], is_causal=True, enable_gqa=True
        )
        joined = mixed[0].transpose(0, 1).reshape(len(hidden), -1)
        hidden = hidden + functional.linear(joined, weights[f"{name}self_attn.o_proj.weight"])
        normed = self._norm(hidden, weights[f"{name}post_attention_layernorm.weight"])
        gate, up = (functional.linear(normed, weights[f"{name}mlp.{part}_proj.weight"]) for part in ("gate", "up"))
        return hidden + functional.linear(functional.silu(gate) * up, weights[f"{name}mlp.down_proj.weight"])

    def _heads(self, x: Tensor, weight: Tensor) -> Tensor:
        """[heads, width, size of a head]"""
        return functional.linear(x, weight).view(len(x), -1, self._config.head_dim).transpose(0, 1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], weight, self._config.rms_norm_eps)
