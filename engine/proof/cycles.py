"""The exact output law of a real cycle: drafter, forward, warp and verdict as they are, on models that are tables.

What `tables` proves of every rule on trees of any shape, this proves of the trees that the drafters really make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from engine.decoder import SpeculativeDecoder
from engine.drafters import Context, Drafter
from engine.drafters.lookahead import LookaheadDrafter, NGramPool
from engine.drafters.lookup import LookupDrafter
from engine.drafters.merged import MergedDrafter
from engine.drafters.small_model import SmallModelDrafter
from engine.drafters.surroundings import Markers
from engine.drafters.workspace import WorkspaceDrafter
from engine.model import CachedModel
from engine.proof.integral import pieces
from engine.proof.laws import Array, History, random_law
from engine.request import Sampling
from engine.runners import Runner
from engine.sampling import Noise
from engine.speculation import ROOT, Draft
from engine.workspace_index import WorkspaceIndex

DRAFTERS = ("model", "lookup", "workspace", "lookahead", "merged")

_VOCAB = 3
_PROMPT = (0, 1, 2, 2, 0, 1, 1, 0, 2, 0, 1)  # repeats itself in several ways
_DRAWS = 2  # of the draft model; a certain guess needs room beside and behind them
_GUESSES = 5
_SAMPLED = Sampling("sampled")


class _TableRunner:
    """A model whose law after each history of tokens is random; a row keeps the history that it ends."""

    takes_trees = True

    def __init__(self, seed: int, window: int) -> None:
        self._seed = seed
        self.window = window
        self._rows: list[History] = []

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        del self._rows[start:]
        plain = len(tokens) - len(parents or ())
        for index, token in enumerate(tokens):
            parent = ROOT if parents is None or index < plain else parents[index - plain]
            before = start + index - 1 if parents is None or index < plain else start + plain + parent
            self._rows.append((*(self._rows[before] if before >= 0 else ()), token))
        laws = [random_law(_VOCAB, (self._seed, *history)) for history in self._rows[-tail:]]
        return torch.tensor(np.stack(laws)).log()

    def move_rows(self, sources: Sequence[int], start: int) -> None:
        self._rows[start : start + len(sources)] = [self._rows[source] for source in sources]


class _Watched:
    """A drafter whose last draft can be looked at."""

    def __init__(self, drafter: Drafter) -> None:
        self.name = drafter.name
        self._drafter = drafter
        self.draft = Draft()

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        return self._drafter.prepare(prompt)

    def propose(self, context: Context, limit: int) -> Draft:
        self.draft = self._drafter.propose(context, limit)
        return self.draft


def largest_cycle_error(name: str, seed: int) -> float:
    """Of the probability of any output of one cycle with the drafter of this name, against the target's own law."""
    return float(np.abs(cycle_law(name, seed) - _joint(seed, (), _GUESSES + 1)).max())


@torch.inference_mode()
def cycle_law(name: str, seed: int) -> Array:
    """The law of what a cycle emits, each output completed from the target to one length: [vocab, vocab, …]."""
    drafter = _Watched(_drafter(name, seed))
    target = _table_model(2 * seed, window=64)

    def cycle(noise: Noise) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        decoder = SpeculativeDecoder(target, drafter, _SAMPLED, noise, frozenset(), _GUESSES)
        step = next(step for step in decoder.decode(_PROMPT, _GUESSES + 1) if step.forwards or step.fault)
        if step.fault:
            raise RuntimeError(step.fault)
        return tuple(drafter.draft.tokens), drafter.draft.parents, step.tokens

    law = np.zeros((_VOCAB,) * (_GUESSES + 1))
    for (_, _, emitted), volume in pieces(cycle, []):
        law[emitted] += volume * _joint(seed, emitted, _GUESSES + 1 - len(emitted))
    return law


def _table_model(seed: int, window: int) -> CachedModel:
    return CachedModel(cast(Runner, _TableRunner(seed, window)), _VOCAB)  # nobody here asks for hidden states


def _joint(seed: int, emitted: History, length: int) -> Array:
    """The target's law of the next `length` tokens."""
    if not length:
        return np.ones(())
    law = random_law(_VOCAB, (2 * seed, *_PROMPT, *emitted))
    return np.stack([law[token] * _joint(seed, (*emitted, token), length - 1) for token in range(_VOCAB)])


def _drafter(name: str, seed: int) -> Drafter:
    """Over this prompt, an index in which every two tokens stand somewhere, and a draft model that is another table,
    whose window ends a chain after a few draws."""
    markers, index = Markers(frozenset(), _VOCAB), WorkspaceIndex()
    pool = NGramPool()
    pool.add(_PROMPT[-1], (0, 2))
    index.update({"a": np.random.default_rng(seed).integers(0, _VOCAB, 60).tolist()})
    lookup, workspace = LookupDrafter(markers), WorkspaceDrafter(index, markers)
    model = SmallModelDrafter(_table_model(2 * seed + 1, window=len(_PROMPT) + _DRAWS - 1), frozenset())
    drafters: dict[str, Drafter] = {
        "model": model,
        "lookup": lookup,
        "workspace": workspace,
        "lookahead": LookaheadDrafter(pool),
        "merged": MergedDrafter(lookup, workspace, model),
    }
    return drafters[name]
