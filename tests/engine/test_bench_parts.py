"""The benchmarks of single parts: what they say of order and size, not of time."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from engine.bench import layouts, pieces
from engine.holes import cut
from engine.loading import LoadedPair
from engine.request import CompletionRequest


def test_layouts(exact_pair: LoadedPair) -> None:
    """Suffix first, a keystroke appends; prefix first, it moves the whole suffix. The builder's own order is the one
    measured under its name. Seen to fail with the order not put into the builder."""
    holes = cut(Path(sysconfig.get_path("stdlib")), 6, seed=1)
    nats, new = layouts.measure(exact_pair, holes, "suffix-first")
    _, moved = layouts.measure(exact_pair, holes, "prefix-first")
    assert new <= 3 < 20 < moved
    slow, tokens = 0.0, 0
    for hole in holes:
        prompt = exact_pair.prompts.build(CompletionRequest(hole.prefix, hole.suffix, hole.path), 768).ids
        middle = exact_pair.prompts.plain(hole.middle, continued=True)[:48]
        for place, token in enumerate(middle):
            law = exact_pair.target.logits([*prompt, *middle[:place]])[0].log_softmax(dim=-1)
            slow -= float(law[token])
        tokens += len(middle)
    assert nats == pytest.approx(slow / tokens, rel=1e-4)


def test_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token of the workspace is there to be found. Seen to fail with files of one name."""
    monkeypatch.setattr(pieces, "SECONDS", 0.01)
    names = [name for name, ms in pieces.looks(300_000) if ms > 0]
    assert names[0] == "lookup in 8192 tokens"
    assert names[1].startswith("workspace of 0.3 million tokens")
