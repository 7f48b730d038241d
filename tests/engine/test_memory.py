"""Memory that another program takes: what works goes on, says so once, and no token is wrong for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from tiny import tiny_model, uncached_logits
from toys import END, TableRunner, toy_pair

import engine.service
from engine import loading
from engine.config import EngineConfig
from engine.generation import generate
from engine.loading import LoadedPair, load
from engine.model import CachedModel
from engine.prefix_store import PrefixStore
from engine.request import CompletionRequest
from engine.runners import Rows, Runner, WrappedRunner
from engine.service import CompletionEngine, EngineError
from engine.transformers_runner import TransformersRunner

BUDGET = 1 << 20


class Short(WrappedRunner):
    """Runs out of memory in the next `forwards` forwards, each half way, and in the next `copies` copies."""

    def __init__(self, inner: Runner) -> None:
        super().__init__(inner)
        self.forwards = self.copies = 0

    def forward(
        self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None
    ) -> torch.Tensor:
        if self.forwards:
            self.forwards -= 1
            super().forward(tokens[: len(tokens) // 2 + 1], start, 1)
            raise torch.OutOfMemoryError
        return super().forward(tokens, start, tail, parents)

    def fill(self, tokens: Sequence[int], start: int) -> Iterator[None]:
        yield self.forward(tokens, start, 1)

    def read_rows(self, start: int, end: int) -> Rows:
        if self.copies:
            self.copies -= 1
            raise torch.OutOfMemoryError
        return super().read_rows(start, end)


def stored() -> tuple[Short, CachedModel, PrefixStore]:
    runner, store = Short(TransformersRunner(tiny_model("llama"))), PrefixStore(BUDGET)
    model = CachedModel(runner, 48, store.shelf())
    for seed in (1, 2):
        model.logits(document(seed))
    assert store.bytes
    return runner, model, store


def document(seed: int) -> list[int]:
    return [(seed + place * (seed + 3)) % 48 for place in range(80)]


def assert_right(model: CachedModel, tokens: list[int]) -> None:
    expected = uncached_logits(tiny_model("llama"), tokens)[-1:]
    torch.testing.assert_close(model.logits(tokens), expected, atol=1e-4, rtol=0)


def test_a_forward_is_made_again_without_the_other_documents() -> None:
    """Seen to fail: the store left as it was."""
    runner, model, store = stored()
    runner.forwards = 1
    assert_right(model, [*document(2), 5])
    assert (store.bytes, store.budget) == (0, BUDGET // 2)
    assert_right(model, [*document(1), 5])


def test_a_piece_of_a_prompt_is_computed_again_without_the_other_documents() -> None:
    """Seen to fail: `_fill` without a second try."""
    runner, model, store = stored()
    runner.forwards = 1
    tokens = [*document(3)[:60], *document(2)[:50]]
    for _ in model.prefill(tokens, 50):
        pass
    assert (runner.forwards, store.bytes) == (0, 0)
    assert_right(model, tokens)


def test_a_document_that_cannot_be_put_away_is_computed_again() -> None:
    """Seen to fail: the error of `put` let through."""
    runner, model, store = stored()
    runner.copies = 1
    assert_right(model, [*document(1)[:40], *document(3)])
    assert store.budget == BUDGET // 2
    assert_right(model, [*document(2), 5])


def test_a_lasting_shortage_is_raised_and_leaves_the_rows_right() -> None:
    runner, model, _ = stored()
    runner.forwards = 2
    with pytest.raises(torch.OutOfMemoryError):
        model.logits([*document(2), 5])
    assert_right(model, [*document(2), 6])
    assert_right(model, [*document(1), 6])


async def test_a_lasting_shortage_puts_the_embedded_pair_in_place(
    exact_pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that met it fails, with the reason; the next one is right. Seen to fail: `_go_small` not called."""
    target = TableRunner()
    target.table[:, END] -= 100
    pair = toy_pair(target)
    short = Short(target)
    pair.target.runner = short
    monkeypatch.setattr(engine.service, "load", lambda config, report: pair)
    monkeypatch.setattr(loading, "best_dtype", lambda device: "float32")
    served = CompletionEngine(EngineConfig(dtype="float32"))
    await served.load()
    try:
        assert "notice" not in served.description
        heard = list[str]()
        served.watch(lambda: heard.append(served.description["notice"]))
        short.forwards = 99
        notice = "the GPU's memory does not do for the embedded pair: the embedded pair on the CPU"
        with pytest.raises(EngineError, match=f"^{notice}$"):
            _ = [chunk async for chunk in served.stream(CompletionRequest("abc", max_tokens=5))]
        assert heard == [served.description["notice"]] == [notice]
        assert served.description["pair"] == "embedded"
        request = CompletionRequest("def add(first, second):\n    return ", max_tokens=8)
        *_, last = [chunk async for chunk in served.stream(request)]
        *_, expected = generate(exact_pair, request, None)
        assert last.completion.token_ids == expected.completion.token_ids
    finally:
        served.close()


def test_a_shortage_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: the fallback asked for with the same device, target and draft."""
    real, calls = loading._Loader.model, list[str]()

    def short(self: loading._Loader, key: loading.Key, source: str) -> object:
        calls.append(source)
        if len(calls) == 1:
            raise torch.OutOfMemoryError
        return real(self, key, source)

    monkeypatch.setattr(loading._Loader, "model", short)
    pair = load(EngineConfig(draft="none", drafter="lookup", device="cpu"))
    assert calls == ["embedded"] * 3  # the first alone, then with its draft
    assert (pair.name, pair.device, pair.drafter_name) == ("embedded", "cpu", "merged")
    assert pair.notice == "the GPU's memory does not do for the embedded pair: the embedded pair on the CPU"
