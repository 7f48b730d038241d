"""How a forward runs: the general one over any transformers model; the only file that touches transformers' caches."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

_GROWTH = 512  # rows; buffers grow by doubling from here


class Runner(Protocol):
    """A model with one row of keys and values for each position, all of which can be overwritten at any time."""

    window: int  # the most positions

    def forward(self, tokens: Sequence[int], start: int, tail: int) -> Tensor:
        """Computes `tokens` at positions start, start + 1, …, attending to the rows before them and to one another.

        Their rows are overwritten, later rows count as empty. Returns the last `tail` logits, [tail, embedding rows].
        """
        ...


class UnsupportedModelError(Exception):
    """The model's cache cannot be rewound, so a rejected guess could not be taken back."""


class TransformersRunner:
    """The general path: the model's own code, eagerly, over row buffers that rewind by a length.

    Raises UnsupportedModelError for recurrent and hybrid models.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        _refuse_recurrent(model, config)
        self._model = model.eval()
        self._rows = [_Rows() for _ in range(config.num_hidden_layers)]
        self._cache = Cache(layers=self._rows)
        # transformers 5.24 renamed `past_key_values`; the old name warns there and goes in 5.40.
        parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.window: int = getattr(config, "max_position_embeddings", None) or 2**20

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, tail: int) -> Tensor:
        for rows in self._rows:
            rows.length = start
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.arange(start, start + len(tokens), device=device)[None],
            use_cache=True,
            logits_to_keep=tail,
            **{self._cache_name: self._cache},
        )
        logits: Tensor = output.logits[0, -tail:]
        return logits


def _refuse_recurrent(model: Any, config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    recurrent = sorted(kinds - {"full_attention", "sliding_attention", "chunked_attention"})
    if recurrent or getattr(model, "_is_stateful", False):
        what = ", ".join(recurrent) or "recurrent layers"
        raise UnsupportedModelError(f"{config.model_type} keeps a running state ({what}) that cannot be rewound")


class _Rows(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer in a buffer; `length` rows are valid and setting it is the whole rollback.

    Sliding-window layers keep all their rows too: the model's own mask hides the old ones, and a window that
    forgets could not be rewound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = False
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """key_states, value_states: [1, heads, new, size]; returns all valid rows with the new ones at their end."""
        end = self.length + key_states.shape[-2]
        if self.keys is None or self.values is None or end > self.keys.shape[-2]:
            self.keys = self._grown(self.keys, key_states, end)
            self.values = self._grown(self.values, value_states, end)
            self.is_initialized = True
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grown(self, old: Tensor | None, like: Tensor, rows: int) -> Tensor:
        capacity = max(_GROWTH, 1 << (rows - 1).bit_length())
        buffer = like.new_zeros((*like.shape[:-2], capacity, like.shape[-1]))
        if old is not None:
            buffer[:, :, : self.length] = old[:, :, : self.length]
        return buffer

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self, *_: Any) -> int:
        return self.length
