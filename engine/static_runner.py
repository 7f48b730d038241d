"""The runner for a GPU: a lean forward in a ladder of widths over buffers that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine import static_forward
from engine.graphs import CudaGraphs, Replays, Work, unrecorded
from engine.joined import join
from engine.on_device import Behind, to_device
from engine.request import Sampling
from engine.runners import Drawn, FeatureRunner, Rows
from engine.sampling import draw_rows, warp

WIDTHS = (1, 2, 4, 8, 16, 32)  # what narrow forwards are filled up to; a wider one is large products in any case
_LEAST_ROWS = 512


class StaticRunner(FeatureRunner):
    """Runs a model that `engine.joined.can_join` agrees to, on its device and in its type.

    model: of transformers, whose weights it takes over. least: rows that are looked at and allocated at the least; both
    grow by doubling, so that few shapes suffice for all forwards. record: what makes work that is done again and again
    faster; CUDA graphs on a GPU, if not given.
    """

    takes_trees = True

    def __init__(self, model: Any, least: int = _LEAST_ROWS, record: Callable[[Work], Work] | None = None) -> None:
        self.model = model.eval()
        self._joined = join(model)
        self.window: int = self._joined.window
        self._device: torch.device = model.device
        self._least = least
        # What fills the last forward up stands behind the window. A multiple of 16: the attention's mask is aligned.
        self._most = -(-(self.window + WIDTHS[-1]) // 16) * 16
        self._rows = self._empty(least)  # [layer, key/value, head, position, size]
        self._hidden: Tensor | None = None  # [position, size]
        self._inputs = {width: _Inputs(width, self._device) for width in WIDTHS}
        self._logits = self._joined.head.new_empty(WIDTHS[-1], len(self._joined.head))
        self._chains: dict[int, _Chain] = {}
        self._replays = Replays(record or (CudaGraphs() if self._device.type == "cuda" else unrecorded))

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        count = len(tokens)
        width = next((width for width in WIDTHS if width >= count), None)
        if width is None:
            return self._wide(tokens, start, tail, parents)
        inputs = self._inputs[width]
        inputs.set(tokens, start, parents)
        seen = self._room(start + width)
        self._replays.run((width, seen), partial(self._narrow, inputs, seen, self._rows, self._hidden))
        return self._logits[count - tail : count].clone()

    @torch.inference_mode()
    def chain(
        self, tokens: Sequence[int], start: int, uniforms: Sequence[float], sampling: Sampling, vocab: int
    ) -> Drawn:
        count, inputs = len(uniforms), self._inputs[len(tokens)]
        inputs.set(tokens, start, None)
        seen = self._room(start + len(tokens) + count)
        chain = self._chains.get(count)
        if chain is None:
            chain = self._chains[count] = _Chain(count, vocab, self._device)
        chain.uniforms.copy_(to_device(torch.tensor(uniforms, dtype=torch.float64), self._device))
        law = replace(sampling, seed=None)
        work = partial(self._draw, inputs, chain, law, seen, self._rows, self._hidden)
        self._replays.run((count, law, seen), work)
        return Drawn(chain.tokens.clone(), chain.laws.clone(), chain.confidences.clone())

    @torch.inference_mode()
    def move_rows(self, sources: Sequence[int], start: int) -> None:
        index = to_device(sources, self._device)
        self._rows[:, :, :, start : start + len(sources)] = self._rows[:, :, :, index]
        if self._hidden is not None:
            self._hidden[start : start + len(sources)] = self._hidden[index]

    def keep_hidden(self) -> int:
        size = self._joined.embedding.shape[1]
        if self._hidden is None:
            self._hidden = self._joined.embedding.new_zeros(self._rows.shape[3], size)
            self._replays.forget()
        return size

    def hidden(self, start: int, end: int) -> Tensor:
        assert self._hidden is not None, "keep_hidden comes first"
        return self._hidden[start:end]

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(to_device(tokens, self._device))
        return embedded

    def reader(self, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
        rows = self._joined.head[to_device(tokens, self._device)]
        return lambda hidden: hidden.to(rows.dtype) @ rows.T / self._joined.logits_divisor

    @torch.inference_mode()
    def read_rows(self, start: int, end: int) -> Rows:
        kept = (self._rows,) if self._hidden is None else (self._rows, self._hidden)
        return tuple(part[..., start:end, :] for part in kept)

    @torch.inference_mode()
    def write_rows(self, rows: Rows, start: int) -> None:
        self._room(start + rows[0].shape[-2])
        for part, copy in zip((self._rows, self._hidden), rows, strict=False):
            if part is not None:
                part[..., start : start + copy.shape[-2], :] = copy

    def _narrow(self, inputs: _Inputs, seen: int, rows: Tensor, hidden: Tensor | None) -> None:
        """What is recorded: nothing in it depends on anything but the width, `seen` and which buffers there are."""
        here = static_forward.place(self._joined, inputs.start, inputs.ahead, inputs.sees, seen)
        states = self._states(inputs.tokens, here, rows, hidden)
        static_forward.logits(self._joined, states, self._logits[: len(states)])

    def _draw(
        self, inputs: _Inputs, chain: _Chain, sampling: Sampling, seen: int, rows: Tensor, hidden: Tensor | None
    ) -> None:
        """What is recorded of a chain."""
        here = static_forward.place(self._joined, inputs.start, inputs.ahead, inputs.sees, seen)
        states = self._states(inputs.tokens, here, rows, hidden)
        vocab, start = chain.laws.shape[1], inputs.start + len(states)
        for guess in range(len(chain.tokens)):
            logits = static_forward.logits(self._joined, states[-1:])[:, :vocab]
            chain.laws[guess : guess + 1] = law = warp(logits, sampling)
            believed = logits.float().softmax(dim=-1) if sampling.greedy else law
            chain.confidences[guess : guess + 1] = believed.amax(dim=-1)
            chain.tokens[guess : guess + 1] = token = draw_rows(law, chain.uniforms[guess : guess + 1])
            if guess + 1 < len(chain.tokens):
                here = static_forward.place(self._joined, start + guess, chain.nowhere, chain.itself, seen)
                states = self._states(token, here, rows, hidden)

    def _wide(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None) -> Tensor:
        width = len(tokens)
        seen = self._room(start + width)
        if parents is None:
            here = static_forward.place_of_chain(self._joined, start, width)
        else:
            inputs = _Inputs(width, self._device)
            inputs.set(tokens, start, parents)
            here = static_forward.place(self._joined, inputs.start, inputs.ahead, inputs.sees, seen)
        states = self._states(_on(tokens, self._device), here, self._rows, self._hidden)
        return static_forward.logits(self._joined, states[-tail:])

    def _states(self, tokens: Tensor, here: static_forward.Place, rows: Tensor, hidden: Tensor | None) -> Tensor:
        states = static_forward.hidden_states(self._joined, tokens, here, rows)
        if hidden is not None:
            hidden.index_copy_(0, here.rows, states)
        return states

    def _room(self, end: int) -> int:
        """Sees to it that there are `end` rows; returns how many a forward looks at that ends there."""
        rows = min(max(self._least, 1 << (end - 1).bit_length()), self._most)
        if rows > self._rows.shape[3]:
            grown, hidden = self._empty(rows), None
            if self._hidden is not None:
                hidden = self._hidden.new_zeros(rows, self._hidden.shape[1])
                hidden[: len(self._hidden)] = self._hidden
            grown[:, :, :, : self._rows.shape[3]] = self._rows
            self._rows, self._hidden = grown, hidden
            self._replays.forget()
        return rows

    def _empty(self, rows: int) -> Tensor:
        """Zeros: what is masked is multiplied with 0, which must not meet what is no number."""
        model = self._joined
        shape = len(model.layers), 2, model.kv_heads, min(rows, self._most), model.head_size
        return torch.zeros(shape, dtype=model.embedding.dtype, device=self._device)


class _Inputs:
    """What a forward of one width reads: two tensors, each filled by one copy."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._numbers = torch.zeros(1 + width, dtype=torch.int64, device=device)
        self.start, self.tokens = self._numbers[:1], self._numbers[1:]
        self._layout = torch.empty(width, 1 + width, dtype=torch.int64, device=device)
        self.ahead = self._layout[:, 0]
        self._arranged: tuple[int, ...] | None = None

    @property
    def sees(self) -> Tensor:
        return self._layout[:, 1:].bool()

    def set(self, tokens: Sequence[int], start: int, parents: Sequence[int] | None) -> None:
        known = tokens.known if isinstance(tokens, Behind) else tokens
        self._numbers[: 1 + len(known)] = to_device([start, *known], self._numbers.device)
        if isinstance(tokens, Behind):
            self.tokens[len(known) : len(tokens)] = tokens.guesses.there
        # A chain that is filled up is a longer chain, so that most forwards find their layout in place.
        wanted = () if parents is None else (len(tokens), *parents)
        if wanted != self._arranged:
            layout = static_forward.layout(len(self.tokens), len(tokens), parents)
            self._layout.copy_(to_device(layout, self._numbers.device))
            self._arranged = wanted


class _Chain:
    """Where a chain of some length is drawn."""

    def __init__(self, count: int, vocab: int, device: torch.device) -> None:
        self.uniforms = torch.zeros(count, dtype=torch.float64, device=device)
        self.tokens = torch.zeros(count, dtype=torch.int64, device=device)
        self.laws = torch.zeros(count, vocab, device=device)
        self.confidences = torch.zeros(count, device=device)
        # Each guess stands right behind what was there, and sees itself.
        self.nowhere = torch.zeros(1, dtype=torch.int64, device=device)
        self.itself = torch.ones(1, 1, dtype=torch.bool, device=device)


def _on(tokens: Sequence[int], device: torch.device) -> Tensor:
    if not isinstance(tokens, Behind):
        return to_device(tokens, device)
    return torch.cat([to_device(tokens.known, device), tokens.guesses.there.long()])
