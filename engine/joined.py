"""Decoder-only families as one lean forward sees them: what they share, and the few points in which they differ.

Products that share an input are joined into one. The transformers model that the weights come from goes on working: its
parameters become views of the joined ones, so nothing is held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# By transformers' name of the architecture; each is read from modules of the same names.
_FAMILIES = frozenset({"gemma", "granite", "llama", "mistral", "qwen2", "qwen3", "starcoder2"})
# Whose angles depend on the position alone; others change them with the length of the text.
_ANGLES = frozenset({"default", "linear", "llama3", "yarn"})


class Linear(NamedTuple):
    """weight: [out, in]; bias: [out]."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def add_to(self, total: Tensor, x: Tensor, factor: float) -> Tensor:
        """Adds `factor` times the product to `total` [width, out], in place."""
        total.addmm_(x, self.weight.T, alpha=factor)
        return total if self.bias is None else total.add_(self.bias, alpha=factor)


class Norm(NamedTuple):
    """Over the last dimension: RMS norm (Zhang and Sennrich, 2019), or LayerNorm where there is a bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        if self.bias is not None:
            return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return functional.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. up: the gates before what they multiply, where the family has gates."""

    attention_norm: Norm
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    output: Linear
    mlp_norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Joined:
    """A model's weights and numbers."""

    layers: tuple[Layer, ...]
    embedding: Tensor  # [vocab, size]
    head: Tensor  # [vocab, size]; the embedding, where the two are tied
    norm: Norm
    heads: int
    kv_heads: int
    head_size: int
    window: int
    span: int | None  # positions that a token sees, itself included
    activation: Callable[[Tensor], Tensor]
    gated: bool
    cos: Tensor  # [window, head_size]
    sin: Tensor
    embedding_factor: float = 1.0
    attention_factor: float = 1.0
    residual_factor: float = 1.0
    logits_divisor: float = 1.0


def can_join(model: Any) -> bool:
    """Whether this transformers model is one that `join` reads."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ())
    bidirectional = getattr(config, "use_bidirectional_attention", False)
    return (
        config.model_type in _FAMILIES
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type") in _ANGLES
        and len(kinds) <= 1
        and not bidirectional
        and all(type(part) is torch.nn.Linear for part in _products(model))  # quantised ones have other weights
    )


@torch.no_grad()
def join(model: Any) -> Joined:
    """Takes over the weights of a model that `can_join` agrees to."""
    config, body = model.config, model.model
    scaled = config.model_type == "gemma"
    size = config.hidden_size
    positions = torch.arange(config.max_position_embeddings, device=model.device)[None]
    cos, sin = body.rotary_emb(body.embed_tokens.weight[:1], position_ids=positions)
    head_size = getattr(config, "head_dim", None) or size // config.num_attention_heads
    kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
    root = float(torch.tensor(size**0.5).to(model.dtype))
    return Joined(
        layers=tuple(_layer(layer, config.model_type) for layer in body.layers),
        embedding=body.embed_tokens.weight.detach(),
        head=model.lm_head.weight.detach(),
        norm=_norm(body.norm, config.model_type),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=head_size,
        window=config.max_position_embeddings,
        span=getattr(config, "sliding_window", None) if kinds[0] == "sliding_attention" else None,
        activation=_activation(body.layers[0].mlp),
        gated=hasattr(body.layers[0].mlp, "gate_proj"),
        cos=cos[0].clone(),
        sin=sin[0].clone(),
        embedding_factor=root if scaled else getattr(config, "embedding_multiplier", 1.0),
        attention_factor=getattr(config, "attention_multiplier", head_size**-0.5),
        residual_factor=getattr(config, "residual_multiplier", 1.0),
        logits_divisor=getattr(config, "logits_scaling", 1.0),
    )


def _layer(layer: Any, family: str) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    if hasattr(mlp, "gate_proj"):
        up, down = _joined([mlp.gate_proj, mlp.up_proj]), mlp.down_proj
    else:
        up, down = _joined([mlp.c_fc]), mlp.c_proj
    return Layer(
        attention_norm=_norm(layer.input_layernorm, family),
        qkv=_joined([attention.q_proj, attention.k_proj, attention.v_proj]),
        query_norm=_norm(attention.q_norm, family) if hasattr(attention, "q_norm") else None,
        key_norm=_norm(attention.k_norm, family) if hasattr(attention, "k_norm") else None,
        output=_joined([attention.o_proj]),
        mlp_norm=_norm(layer.post_attention_layernorm, family),
        up=up,
        down=_joined([down]),
    )


def _joined(parts: Sequence[Any]) -> Linear:
    """One product for several linear modules, whose parameters become views of it."""
    if len(parts) == 1:
        bias = parts[0].bias
        return Linear(parts[0].weight.detach(), None if bias is None else bias.detach())
    weight = torch.cat([part.weight for part in parts])
    bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
    sizes = [len(part.weight) for part in parts]
    for part, rows in zip(parts, torch.split(weight, sizes), strict=True):
        part.weight.data = rows
    if bias is not None:
        for part, rows in zip(parts, torch.split(bias, sizes), strict=True):
            part.bias.data = rows
    return Linear(weight, bias)


def _norm(module: Any, family: str) -> Norm:
    if family == "starcoder2":
        return Norm(module.weight.detach(), module.bias.detach(), module.eps)
    if family == "gemma":  # its weight is the difference from 1, which bfloat16 would not hold
        return Norm(1.0 + module.weight.detach().float(), None, module.eps)
    return Norm(module.weight.detach(), None, module.variance_epsilon)


def _activation(mlp: Any) -> Callable[[Tensor], Tensor]:
    chosen: Callable[[Tensor], Tensor] = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.act
    return chosen


def _products(model: Any) -> list[Any]:
    layers = model.model.layers
    return [module for layer in layers for module in layer.modules() if hasattr(module, "in_features")]
