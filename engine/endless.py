"""A pair that cannot end a completion by itself, for measurements over a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.loading import LoadedPair
from engine.model import CachedModel
from engine.runners import Runner, WrappedRunner


def without_ends(pair: LoadedPair) -> LoadedPair:
    """The pair with every end token banned in both models, so that completions reach their full length."""
    ends = sorted(pair.end_tokens)
    draft = None if pair.draft is None else CachedModel(_Banned(pair.draft.runner, ends), pair.draft.vocab)
    return replace(pair, target=CachedModel(_Banned(pair.target.runner, ends), pair.target.vocab), draft=draft)


class _Banned(WrappedRunner):
    """A runner in whose logits some ids are impossible."""

    def __init__(self, runner: Runner, ids: Sequence[int]) -> None:
        super().__init__(runner)
        self._ids = list(ids)

    def forward(
        self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None
    ) -> torch.Tensor:
        logits = super().forward(tokens, start, tail, parents).clone()
        logits[:, self._ids] = float("-inf")
        return logits
