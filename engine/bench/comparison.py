"""Plain and speculative decoding of one pair on the same holes, in turn, in one run."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from engine import threads
from engine.endless import without_ends
from engine.generation import generate
from engine.holes import Hole
from engine.loading import LoadedPair
from engine.record import Completion
from engine.request import CompletionRequest, Sampling

PLAIN, SPECULATIVE = "plain", "speculative"


@dataclass(frozen=True, slots=True)
class Measured:
    """One hole, decoded both ways. Decode times leave the prompt's first forward out: (total - TTFT) / (tokens - 1)."""

    hole: Hole
    plain: Completion
    speculative: Completion

    @property
    def identical(self) -> bool:
        return self.plain.token_ids == self.speculative.token_ids


def compare(
    pair: LoadedPair, holes: Sequence[Hole], tokens: int, sampling: Sampling, each: Callable[[Measured], None]
) -> list[Measured]:
    """Decodes every hole plainly and speculatively, `tokens` tokens each, end tokens banned, from a cold cache.

    The order of the two alternates from hole to hole, so that neither always has the warmer machine.
    """
    pair = without_ends(pair)
    measured = []
    for index, hole in enumerate(holes):
        request = CompletionRequest(hole.prefix, hole.suffix, hole.path, sampling=sampling, max_tokens=tokens)
        runs = {}
        for name in (PLAIN, SPECULATIVE) if index % 2 == 0 else (SPECULATIVE, PLAIN):
            pair.forget()
            runs[name] = _last(pair, request, speculate=name == SPECULATIVE)
        measured.append(Measured(hole, runs[PLAIN], runs[SPECULATIVE]))
        each(measured[-1])
    return measured


def _last(pair: LoadedPair, request: CompletionRequest, speculate: bool) -> Completion:
    *_, last = generate(pair, request, pair.drafter() if speculate else None)
    assert last.completion is not None
    return last.completion


def document(pair: LoadedPair, measured: Sequence[Measured]) -> dict[str, Any]:
    """The measurements as one JSON object, medians over holes; what was not measured is null."""
    plain, speculative = ([_decode_ms(run) for run in runs] for runs in _runs(measured))
    ratios = [slow / fast for slow, fast in zip(plain, speculative, strict=True)]
    kinds = sorted({item.hole.kind for item in measured})
    return {
        "machine": machine(pair),
        "pair": pair.name,
        "holes": len(measured),
        "classes": {
            kind: _class([item for item in measured if item.hole.kind == kind], pair.drafter_name) for kind in kinds
        },
        "ms_per_token": {PLAIN: _median(plain), SPECULATIVE: _median(speculative)},
        "ratios": {"speculative_over_plain": _median(ratios), "quartiles": _quartiles(ratios)},
        "tokens_per_forward": {
            pair.drafter_name: _median([_tokens_per_forward(item.speculative) for item in measured])
        },
        "identical": [sum(item.identical for item in measured), len(measured)],
    }


def machine(pair: LoadedPair) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "device": pair.device,
        "threads": threads.MOST,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": pair.dtype,
    }


def _class(measured: Sequence[Measured], drafter: str) -> dict[str, Any]:
    """Medians of one kind of hole, by drafter."""
    return {
        name: {
            "ms_per_token": _median([_decode_ms(run) for run in runs]),
            "ttft_ms": _median([run.ttft_ms for run in runs]),
            "total_ms": _median([run.total_ms for run in runs]),
            "tokens_per_forward": _median([_tokens_per_forward(run) for run in runs]),
            "drafted": _median([run.drafted for run in runs]),
            "accepted": _median([run.accepted for run in runs]),
            "draft_ms": _median([run.draft_ms for run in runs]),
            "verify_ms": _median([run.verify_ms for run in runs]),
        }
        for name, runs in zip(("none", drafter), _runs(measured), strict=True)
    }


def _runs(measured: Sequence[Measured]) -> tuple[list[Completion], list[Completion]]:
    return [item.plain for item in measured], [item.speculative for item in measured]


def _decode_ms(run: Completion) -> float:
    """Milliseconds a token behind the first forward, which emits the first `accepted_lengths[0] + 1` tokens."""
    behind = run.tokens - (run.accepted_lengths[0] + 1)
    return (run.total_ms - run.ttft_ms) / max(behind, 1)


def _tokens_per_forward(run: Completion) -> float:
    return run.tokens / run.target_forwards


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _quartiles(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in statistics.quantiles(values, n=4)] if len(values) > 1 else []


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a pseudo file
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
