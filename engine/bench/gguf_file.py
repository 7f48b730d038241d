"""The embedded pair as GGUF files, as llama.cpp's own converter would write them: for servers that read no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import gguf
from torch import Tensor

from engine import embedded

Kind = Literal["f32", "f16", "bf16", "q8_0"]  # of the matrices; vectors stay f32

_TYPES: dict[Kind, Any] = {kind: getattr(gguf.GGMLQuantizationType, kind.upper()) for kind in ("f32", "f16", "bf16")}
_TYPES["q8_0"] = gguf.GGMLQuantizationType.Q8_0


def write_gguf(path: Path, role: embedded.Role, kind: Kind = "f32") -> None:
    """The embedded target or draft with its tokenizer."""
    shape = embedded.shape(role)
    writer = gguf.GGUFWriter(path, "llama")
    _add_shape(writer, shape)
    _add_tokenizer(writer)
    mapped = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.num_hidden_layers)
    heads = {"q_proj": shape.num_attention_heads, "k_proj": shape.num_key_value_heads}
    for name, tensor in embedded.weights(role).items():
        values = _as_llama_turns(tensor, heads.get(name.split(".")[-2])).numpy()
        type_ = _TYPES[kind] if values.ndim > 1 else _TYPES["f32"]
        data = gguf.quants.quantize(values, type_)
        writer.add_tensor(mapped.get_name(name, (".weight",)), data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _as_llama_turns(tensor: Tensor, heads: int | None) -> Tensor:
    """llama.cpp turns neighbouring pairs of a head's rows, transformers its halves."""
    if heads is not None:
        tensor = tensor.view(heads, 2, -1, tensor.shape[-1]).transpose(1, 2).reshape(tensor.shape)
    return tensor.contiguous()


def _add_shape(writer: Any, shape: Any) -> None:
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_vocab_size(shape.vocab_size)


def _add_tokenizer(writer: Any) -> None:
    backend = json.loads((embedded.FOLDER / "tokenizer.json").read_text())
    vocabulary = backend["model"]["vocab"] | {token["content"]: token["id"] for token in backend["added_tokens"]}
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    added = {token["content"] for token in backend["added_tokens"]}
    kinds = [gguf.TokenType.CONTROL if name in added else gguf.TokenType.NORMAL for name in names]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")  # splits as ours does
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in backend["model"]["merges"]]
    )
    writer.add_bos_token_id(vocabulary["<|endoftext|>"])  # as for Qwen; transformers 5.17 cannot do without
    writer.add_eos_token_id(vocabulary["<|endoftext|>"])
    writer.add_add_bos_token(False)
