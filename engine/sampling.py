"""The one path from logits to probabilities, and the random numbers keyed by position.

The target's law p and a drafter's law q both come out of `warp`, so they can never be warped differently. Everything
is float32 or wider: ratios of bfloat16 probabilities would carry 8 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.on_device import is_near
from engine.request import Sampling

# The nucleus of a code model is nearly always this small; the full sort is the fallback, so the result is exact.
_NUCLEUS_GUESS = 128
_RUN = 512  # tokens whose weights are summed together where many processors share the work


def warp(logits: Tensor, sampling: Sampling) -> Tensor:
    """The law that tokens are drawn from: temperature, then top-k, top-p and min-p, each renormalised.

    logits: [n, vocab], any float type; -inf marks a token that may never be emitted.
    Returns [n, vocab] float32 (float64 stays float64), rows sum to 1. Ties at a cut are broken by token id, lower ids
    first, so that p and q cut alike. If a row holds NaN, +inf or nothing but -inf, raises FloatingPointError; on a
    device where looking means waiting, that row is NaN instead, and `verify` raises.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    highest, first = logits.max(dim=-1, keepdim=True)  # of equal maxima, torch promises the first
    finite = torch.isfinite(highest)  # max propagates NaN and +inf, and an empty row is -inf
    if is_near(logits) and not bool(finite.all()):
        raise FloatingPointError("the model returned logits that are not finite")
    if sampling.greedy:
        return torch.zeros_like(logits).scatter_(-1, first, torch.ones_like(highest).masked_fill_(~finite, torch.nan))
    probs = torch.softmax((logits - highest) / sampling.temperature, dim=-1)
    if 0 < sampling.top_k < probs.shape[-1]:
        probs = _normalised(probs * _top_k_mask(probs, sampling.top_k))
    if sampling.top_p < 1.0:
        probs = _normalised(probs * _top_p_mask(probs, sampling.top_p))
    if sampling.min_p > 0.0:
        floor = probs.max(dim=-1, keepdim=True).values * sampling.min_p
        probs = _normalised(probs * (probs >= floor))
    return probs


def _normalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=-1, keepdim=True)


def _top_k_mask(probs: Tensor, k: int) -> Tensor:
    """The k likeliest tokens of each row; of tokens that tie at the cut, those with the lower ids."""
    kth = torch.topk(probs, k, dim=-1).values[:, -1:]
    above, ties = probs > kth, probs == kth
    room = k - above.sum(dim=-1, keepdim=True)
    return above | (ties & (ties.cumsum(dim=-1) <= room))


def _top_p_mask(probs: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest tokens whose mass reaches top_p; never empty.

    A token stays if the mass of the tokens ranked before it is below top_p. Sorting a few candidates is enough when
    they hold that mass already, and `topk` of few is many times cheaper than a sort of the vocabulary; where asking
    whether they do means waiting, all are sorted.
    """
    width = probs.shape[-1]
    guess = min(_NUCLEUS_GUESS, width) if is_near(probs) else width
    if guess < width and bool((torch.topk(probs, guess, dim=-1).values.sum(dim=-1) < top_p).any()):
        guess = width
    top = torch.topk(probs, guess, dim=-1).values  # [n, guess], falling
    before = top.double().cumsum(dim=-1) - top.double()
    kept = (before < top_p).sum(dim=-1, keepdim=True).clamp(min=1)  # [n, 1]
    cut = top.gather(-1, kept - 1)
    above, ties = probs > cut, probs == cut
    room = kept - above.sum(dim=-1, keepdim=True)
    return above | (ties & (ties.cumsum(dim=-1) <= room))


class Uniforms(NamedTuple):
    """The random numbers of one position, each in [0, 1) with 53 bits, independent of one another."""

    draft: float  # draws the guess from q
    accept: float  # decides p/q
    target: float  # draws from p or from the residual


class Noise:
    """Uniform numbers keyed by (seed, position): Philox, a counter-based generator (Salmon et al., 2011).

    A position's numbers do not depend on what was drawn before, so plain decoding, any block borders and a restart
    after a keystroke see the same noise. Position 0 is the first token of the completion. `sibling` tells apart the
    sampled guesses for one position; the numbers of sibling 0 also draw from the target.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[int, tuple[np.random.Generator, list[list[float]]]] = {}

    def at(self, position: int, sibling: int = 0) -> Uniforms:
        """The numbers of one position (≥ 0) and sibling (≥ 0)."""
        if sibling not in self._streams:
            self._streams[sibling] = self._generator(sibling), []
        rng, table = self._streams[sibling]
        while position >= len(table):
            table.extend(rng.random((64, 4)).tolist())  # a Philox block is four numbers: one row a position
        draft, accept, target, _ = table[position]
        return Uniforms(draft, accept, target)

    def first(self, count: int) -> NDArray[np.float64]:
        """The numbers of the first `count` positions, of sibling 0: [count, 3], as in Uniforms."""
        return self._generator(0).random((count, 4))[:, :3]

    def _generator(self, sibling: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=np.array([self._seed, sibling], dtype=np.uint64)))


def draw_many(weights: Tensor, uniforms: Tensor) -> Tensor:
    """What `draw` selects for each of `uniforms` [n] float64: [n] int64."""
    mass = weights.cumsum(dim=-1, dtype=torch.float64)
    return torch.searchsorted(mass, mass[-1] * uniforms, right=True).clamp(max=int(weights.nonzero()[-1]))


def draw_rows(weights: Tensor, uniforms: Tensor) -> Tensor:
    """What `draw` selects from each row with its own uniform, [n] int64, without waiting for the device.

    weights: [n, vocab]; uniforms: [n] float64. First the run of tokens, then the token in it: one long cumulated sum
    would have one processor of many at work. A row that is NaN gives some token of the vocabulary.
    """
    vocab = weights.shape[-1]
    runs = torch.nn.functional.pad(weights, (0, -vocab % _RUN)).view(len(weights), -1, _RUN)
    masses = runs.sum(dim=-1, dtype=torch.float64)
    ends = masses.cumsum(dim=-1)
    points = ends[:, -1:] * uniforms[:, None]
    run = _first_beyond(ends, points, masses)
    # The same sum that the run was chosen by, so that the point stands in the run and not before it.
    before = torch.nn.functional.pad(ends, (1, 0)).gather(-1, run)
    inside = runs.gather(1, run[..., None].expand(-1, 1, _RUN))[:, 0]  # [n, _RUN]
    token = _first_beyond(before + inside.cumsum(dim=-1, dtype=torch.float64), points, inside)
    return (run * _RUN + token)[:, 0].clamp(max=vocab - 1)


def _first_beyond(ends: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    """Of each row, the first place whose end lies beyond the point, or the last with a weight if rounding took the
    point to the end of all. [n, 1]"""
    places = torch.arange(weights.shape[-1], device=weights.device)
    last = ((weights > 0) * places).amax(dim=-1, keepdim=True)
    return torch.minimum(torch.searchsorted(ends, points, right=True), last)


def draw(weights: Tensor, uniform: float) -> int:
    """The token that `uniform` in [0, 1) selects from unnormalised weights, by inverse transform in float64.

    weights: [vocab], ≥ 0 with a positive sum. Never selects a token of weight 0.
    """
    mass = weights.cumsum(dim=-1, dtype=torch.float64)
    # right=True: the first token whose cumulated mass exceeds the point, so weight 0 has an empty interval.
    token = int(torch.searchsorted(mass, mass[-1] * uniform, right=True))
    if token < len(weights):
        return token
    return int(weights.nonzero()[-1])  # uniform · total rounded up to total
