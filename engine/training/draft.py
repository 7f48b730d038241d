"""Distils a draft model from the target on the user's own files: what is trained is what decides over acceptance, the
overlap of the two laws (Leviathan et al., 2023), beside their divergence, which has a gradient everywhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from engine.checkpoints import embedded_model
from engine.config import ConfigError
from engine.loading import LoadedPair
from engine.sources import FIX, is_embedded, locate
from engine.training.examples import Examples
from engine.training.features import Features

_BATCH = 4  # examples a step
_POSITIONS = 128  # of each, its last ones: the middle, and some of what stands before it
# Of a draft that begins from nothing: as the embedded one.
_SIZE, _LAYERS, _HEADS, _KV_HEADS, _INNER = 256, 2, 4, 2, 768


def beginning(pair: LoadedPair, draft: str | None) -> Any:
    """The model that the training starts from: a copy of `draft`, or a small one with random weights.

    Raises ConfigError.
    """
    if draft is None:
        return _small(pair)
    if is_embedded(draft):
        return embedded_model("draft", torch.float32).to(pair.target.features.embed([0]).device).train()
    place, options = locate("draft", draft)
    try:
        model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **options)
    except Exception as error:  # transformers raises whatever it likes at a damaged file
        raise ConfigError("draft", f"{draft} cannot be loaded ({type(error).__name__}); {FIX}") from error
    return model.to(pair.target.features.embed([0]).device).train()


def _small(pair: LoadedPair) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=pair.target.vocab,
        hidden_size=_SIZE,
        intermediate_size=_INNER,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        max_position_embeddings=min(pair.target.window, 8192),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=pair.tokenizer.eos_token_id,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).to(pair.target.features.embed([0]).device).train()


class DraftRecipe:
    """Parameters in float32 on the target's device."""

    rate = 4e-4

    def __init__(self, pair: LoadedPair, examples: Examples, model: Any, steps: int) -> None:
        self._pair = pair
        self._model = model
        self._features = Features(pair.target, examples, steps * _BATCH)
        self._read = pair.target.features.reader(range(pair.target.vocab))
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())

    def loss(self, step: int) -> tuple[Tensor, float]:
        total, right = torch.zeros((), device=self._model.device), 0.0
        for place in range(_BATCH):
            tokens, features = self._features.turn(step * _BATCH + place)
            count = min(len(tokens), _POSITIONS)
            with torch.no_grad():
                p = self._read(features[-count:]).float().log_softmax(dim=-1)
            ids = torch.tensor([tokens], device=self._model.device)
            logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=count).logits[0]
            q = logits[:, : p.shape[-1]].float().log_softmax(dim=-1)
            divergence = (p.exp() * (p - q)).sum(dim=-1).mean()
            overlap = torch.minimum(p.exp(), q.exp()).sum(dim=-1).mean()
            total = total + (0.5 * divergence + 2 * (1 - overlap)) / _BATCH
            right += float(overlap.detach()) / _BATCH
        return total, right

    def write(self, out: Path) -> None:
        """A folder as any Hugging Face checkpoint, with the target's tokenizer."""
        part = out.with_name(out.name + ".part")
        tokenizer: Any = self._pair.tokenizer
        try:
            self._model.save_pretrained(part)
            tokenizer.save_pretrained(part)
            part.replace(out)
        except SafetensorError as error:  # how it says that the disk is full
            raise OSError(str(error)) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
