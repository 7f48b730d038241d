"""The general runner, over any transformers model; the only file that touches transformers' caches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from engine.runners import FeatureRunner, Rows, tree_layout

_GROWTH = 512  # rows; buffers grow by doubling from here


class UnsupportedModelError(Exception):
    """The model's cache cannot be rewound, so a rejected guess could not be taken back."""


class TransformersRunner(FeatureRunner):
    """The general path: the model's own code, eagerly, over row buffers that rewind by a length.

    Raises UnsupportedModelError for recurrent and hybrid models.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        _refuse_recurrent(model, config)
        self.model = model.eval()
        self._rows = [_Rows() for _ in range(config.num_hidden_layers)]
        self._cache = Cache(layers=self._rows)
        # transformers 5.24 renamed `past_key_values`; the old name warns there and goes in 5.40.
        parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.window: int = getattr(config, "max_position_embeddings", None) or 2**20
        # Such models make a mask of their own for each kind of layer; a tree's would have to be made for each, too.
        self.takes_trees = not (getattr(config, "sliding_window", None) or _kinds(config) - {"full_attention"})
        self._hidden: _HiddenRows | None = None

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        for rows in self._rows:
            rows.length = start
        device = self.model.device
        positions, mask = torch.arange(start, start + len(tokens)), None
        if parents is not None:
            positions, visible = tree_layout(len(tokens), start, parents)
            hidden = torch.zeros(visible.shape, dtype=self.model.dtype)
            mask = hidden.masked_fill_(~visible, torch.finfo(hidden.dtype).min)[None, None].to(device)
        with nullcontext() if self._hidden is None else self._hidden.listening(self.model, start):
            output = self.model(
                input_ids=torch.tensor([tokens], device=device),
                attention_mask=mask,
                position_ids=positions[None].to(device),
                use_cache=True,
                logits_to_keep=tail,
                **{self._cache_name: self._cache},
            )
        logits: Tensor = output.logits[0, -tail:]
        return logits

    @torch.inference_mode()
    def move_rows(self, sources: Sequence[int], start: int) -> None:
        for rows in self._rows:
            rows.move(sources, start)
        if self._hidden is not None:
            self._hidden.move(sources, start)

    def keep_hidden(self) -> int:
        if self._hidden is None:
            self._hidden = _HiddenRows()
        return int(self._output_rows().shape[1])

    def hidden(self, start: int, end: int) -> Tensor:
        assert self._hidden is not None, "keep_hidden comes first"
        assert self._hidden.rows is not None, "no forward yet"
        return self._hidden.rows[start:end]

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(torch.tensor(tokens, device=self.model.device))
        return embedded

    def reader(self, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
        rows = self._output_rows()[torch.tensor(tokens, device=self.model.device)]
        return lambda hidden: hidden.to(rows.dtype) @ rows.T

    def _output_rows(self) -> Tensor:
        """[vocab, size]"""
        weight: Tensor = self.model.get_output_embeddings().weight.detach()
        return weight

    @torch.inference_mode()
    def read_rows(self, start: int, end: int) -> Rows:
        kept = [part for layer in self._filled for part in (layer.keys, layer.values)]
        if self._hidden is not None:
            kept.append(self._hidden.rows)
        return tuple(part[..., start:end, :] for part in kept)

    @torch.inference_mode()
    def write_rows(self, rows: Rows, start: int) -> None:
        for layer, keys, values in zip(self._filled, rows[::2], rows[1::2], strict=False):
            layer.length = start
            layer.update(keys, values)
        if self._hidden is not None and len(rows) % 2:
            self._hidden.put(rows[-1], start)

    @property
    def _filled(self) -> list[Any]:
        """Layers that have rows: some models share those of one layer among several."""
        return [rows for rows in self._rows if rows.keys is not None]


def _refuse_recurrent(model: Any, config: Any) -> None:
    recurrent = sorted(_kinds(config) - {"full_attention", "sliding_attention", "chunked_attention"})
    if recurrent or getattr(model, "_is_stateful", False):
        what = ", ".join(recurrent) or "recurrent layers"
        raise UnsupportedModelError(f"{config.model_type} keeps a running state ({what}) that cannot be rewound")


def _kinds(config: Any) -> set[str]:
    """The kinds of attention that the layers have, where the configuration tells."""
    return set(getattr(config, "layer_types", None) or ())


class _HiddenRows:
    """The last hidden state of each row, [rows, size], in a buffer that grows as those of the keys do."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None

    @contextmanager
    def listening(self, model: Any, start: int) -> Iterator[None]:
        """Keeps those of one forward. What the body gives is what the head reads, and of every row."""
        hook = model.base_model.register_forward_hook(lambda module, inputs, output: self.put(output[0][0], start))
        try:
            yield
        finally:
            hook.remove()

    def put(self, new: Tensor, start: int) -> None:
        end = start + len(new)
        if self.rows is None or end > len(self.rows):
            grown = new.new_zeros(max(_GROWTH, 1 << (end - 1).bit_length()), new.shape[-1])
            if self.rows is not None:
                grown[:start] = self.rows[:start]
            self.rows = grown
        self.rows[start:end] = new

    def move(self, sources: Sequence[int], start: int) -> None:
        assert self.rows is not None
        self.rows[start : start + len(sources)] = self.rows[list(sources)]


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
            # Both or neither, should memory run out between them.
            grown = self._grown(self.keys, key_states, end), self._grown(self.values, value_states, end)
            self.keys, self.values = grown
            self.is_initialized = True
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def move(self, sources: Sequence[int], start: int) -> None:
        assert self.keys is not None
        assert self.values is not None
        for buffer in (self.keys, self.values):
            buffer[:, :, start : start + len(sources)] = buffer[:, :, list(sources)]

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
