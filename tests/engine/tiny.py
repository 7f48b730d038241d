"""Real architectures with two layers and random weights, large enough spread that their text varies."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

WINDOW = 128
ATTENTION_SPAN = 8  # of the sliding-window models: much shorter than the texts

# What differs from _COMMON, by transformers' name of the architecture.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "starcoder2": {"sliding_window": ATTENTION_SPAN},
    "mistral": {"sliding_window": ATTENTION_SPAN},
    "gemma2": {"sliding_window": ATTENTION_SPAN},  # every other layer
    "gpt_bigcode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": WINDOW},
    "gemma": {},
    "granite": {
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.6,
        "logits_scaling": 2.0,
    },
    "qwen3": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


@cache
def tiny_model(architecture: str, vocab: int = 48, seed: int = 0) -> Any:
    """A float32 model in evaluation mode. Shared: it keeps no state."""
    torch.manual_seed(seed)
    values = {**_COMMON, "vocab_size": vocab, **ARCHITECTURES[architecture]}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **values)).float().eval()


@torch.no_grad()
def uncached_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """The model's own logits after each token, without any cache. [len(tokens), vocab]"""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def byte_tokenizer(*markers: str) -> PreTrainedTokenizerFast:
    """256 bytes and the markers; ids from 0, markers last."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


FIM_MARKERS = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def write_checkpoint(
    folder: Path, architecture: str = "llama", rows: int = 272, markers: tuple[str, ...] = FIM_MARKERS, seed: int = 0
) -> Path:
    """A checkpoint as users have it: `rows` in the embedding, 256 bytes and the markers in the tokenizer."""
    tiny_model(architecture, rows, seed).save_pretrained(folder)
    byte_tokenizer(*markers).save_pretrained(folder)
    return folder


def some_tokens(count: int, vocab: int, seed: int = 0) -> list[int]:
    return torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
