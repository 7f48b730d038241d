"""The pair that ships in the wheel: its folder, its int8 weights, and its export as ordinary checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, NamedTuple, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from engine.prompt import Tokenizer

FOLDER = Path(__file__).parent / "pretrained"
Role = Literal["target", "draft"]


class Int8Weight(NamedTuple):
    """A matrix as stored: weight = rows · scale of the row. Rounding is part of the model: this is exact."""

    rows: Tensor  # [out, in] int8
    scales: Tensor  # [out] float32

    @classmethod
    def of(cls, matrix: Tensor) -> Int8Weight:
        """The nearest to a float matrix."""
        scales = matrix.abs().amax(dim=1).clamp(min=1e-12) / 127
        return cls((matrix / scales[:, None]).round().to(torch.int8), scales)

    def dequantised(self) -> Tensor:
        """[out, in] float32"""
        return self.rows * self.scales[:, None]


def shape(role: Role) -> SimpleNamespace:
    """The fields of its config.json, without the 1.1 s that transformers' class for them takes to import."""
    return SimpleNamespace(**json.loads((FOLDER / role / "config.json").read_text()))


def tokenizer() -> Tokenizer:
    """The tokenizer of both models."""
    return cast(Tokenizer, PreTrainedTokenizerFast.from_pretrained(FOLDER))


def stored_weights(role: Role) -> dict[str, Tensor | Int8Weight]:
    """The parameters by transformers' names, matrices as stored. The head is the embedding (`lm_head` is tied)."""
    return joined(load_file(FOLDER / role / "model.safetensors"))


def joined(stored: dict[str, Tensor]) -> dict[str, Tensor | Int8Weight]:
    """Tensors as in the file, each matrix with its scales."""
    scales = {name.removesuffix(".scale"): stored.pop(name) for name in list(stored) if name.endswith(".scale")}
    return {
        name: Int8Weight(tensor, scales[base]) if (base := name.removesuffix(".weight")) in scales else tensor
        for name, tensor in stored.items()
    }


def weights(role: Role) -> dict[str, Tensor]:
    """The parameters by transformers' names, all float32."""
    return {
        name: weight.dequantised() if isinstance(weight, Int8Weight) else weight
        for name, weight in stored_weights(role).items()
    }


def export(folder: Path) -> None:
    """Writes the pair as plain Hugging Face folders `folder/target` and `folder/draft`, in float32.

    Raises FileExistsError if one of them exists already.
    """
    for role in ("target", "draft"):
        (folder / role).mkdir(parents=True)
        save_file(weights(role), folder / role / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(FOLDER / role / "config.json", folder / role)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FOLDER / name, folder / role)
    shutil.copy(FOLDER / "MODEL_CARD.md", folder / "README.md")
