"""The draft model learns while the engine is idle; off unless the user switches it on. Everything stays here."""

from __future__ import annotations

from typing import Any

from engine.adaptation.learner import Learner, Outcome, Weights
from engine.adaptation.store import Store, embedded_pair
from engine.fast_llama import FastLlamaRunner
from engine.model import CachedModel

__all__ = ["Learner", "Outcome", "Weights", "learner"]


def learner(config: Any, shipped: Weights, runner: FastLlamaRunner, draft: CachedModel) -> Learner:
    """For the embedded draft, from what was kept on. runner: what computes `draft`, with weights `shipped`."""
    store = Store(embedded_pair(), shipped)

    def put(weights: Weights) -> None:
        runner.take(weights)
        draft.forget()  # its rows are those of the weights before

    def use(weights: Weights, outcome: Outcome) -> None:
        put(weights)
        store.write(weights, outcome)

    kept = store.read()
    if kept is not None:
        put(kept)
    return Learner(config, shipped if kept is None else kept, use)
