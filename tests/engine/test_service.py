"""CompletionEngine: streams, cancels, faults, closing; on a toy pair, and once on the embedded one."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
import torch
from calls import until
from toys import CHARACTERS, MARKERS, TableRunner, toy_pair

import engine.service
from engine.adaptation import Learner
from engine.adaptation.lessons import Lessons
from engine.config import ConfigError, EngineConfig
from engine.decoder import PREFILL_CHUNK
from engine.loading import LoadedPair
from engine.record import Completion
from engine.request import Chunk, CompletionRequest, Sampling
from engine.service import CompletionEngine, EngineError

DRAFT_LENGTH = 3  # of a toy pair
REQUEST = CompletionRequest("ab(", ")\n", max_tokens=40)


class Gate(TableRunner):
    """A model that can be held at its next forward, so that a test knows where the worker is."""

    def __init__(self) -> None:
        super().__init__()
        self.table[:, : len(MARKERS)] -= 100
        self.entered, self.open = threading.Event(), threading.Event()
        self.delay_s = 0.0
        self.open.set()

    def forward(self, *arguments):
        self.entered.set()
        assert self.open.wait(30)
        time.sleep(self.delay_s)
        return super().forward(*arguments)

    def hold(self) -> None:
        self.open.clear()
        self.entered.clear()


@pytest.fixture
def target() -> Gate:
    return Gate()


@asynccontextmanager
async def serving(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CompletionEngine]:
    """An engine that has loaded `pair`."""
    monkeypatch.setattr(engine.service, "load", lambda config, report: pair)
    served = CompletionEngine(EngineConfig())
    try:
        await served.load()
        yield served
    finally:
        served.close()


@pytest.fixture
async def served(target: Gate, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CompletionEngine]:
    async with serving(toy_pair(target, TableRunner(seed=1)), monkeypatch) as engine_with_toys:
        yield engine_with_toys
        target.open.set()


async def collect(served: CompletionEngine, request: CompletionRequest) -> list[Chunk]:
    return [chunk async for chunk in served.stream(request)]


async def complete(served: CompletionEngine, request: CompletionRequest) -> Completion:
    completion = (await collect(served, request))[-1].completion
    assert completion is not None
    return completion


def idle(served: CompletionEngine) -> bool:
    usage = served.usage()
    return usage["liveGenerations"] == usage["waitingRequests"] == 0


async def test_the_pieces_make_the_text(served: CompletionEngine) -> None:
    chunks = await collect(served, REQUEST)
    completion = chunks[-1].completion
    assert "".join(chunk.text for chunk in chunks) == completion.text
    assert sum(chunk.tokens for chunk in chunks) == completion.tokens == 40
    assert len(chunks) > 5
    assert [chunk.completion for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert served.usage() == {
        "liveGenerations": 0,
        "waitingRequests": 0,
        "engineRequests": 1,
        "engineTokens": 40,
        "tokensAfterCancel": 0,
        "cancelToIdleMs": {"p50": 0.0, "p99": 0.0, "max": 0.0},
    }


async def test_requests_are_served_in_turn(served: CompletionEngine) -> None:
    requests = [CompletionRequest(letter * 3, max_tokens=9) for letter in "abcdef"]
    together = await asyncio.gather(*(complete(served, request) for request in requests))
    assert [each.text for each in together] == [(await complete(served, request)).text for request in requests]


class Text(str):
    """One that tells when it is gone."""

    __slots__ = ("__weakref__",)


async def test_what_is_cancelled_while_it_waits_is_gone_at_once(served: CompletionEngine, target: Gate) -> None:
    """Behind 32 who type, hundreds of requests wait that nobody wants any more. Seen to fail: texts kept until their
    turn; a turn that was counted and computed."""
    first = served.stream(REQUEST)
    await anext(first)
    target.hold()
    text = Text("ab(" * 1000)
    gone, waiting = weakref.ref(text), asyncio.create_task(collect(served, CompletionRequest(text, max_tokens=9)))
    del text
    await until(lambda: served.usage()["waitingRequests"] == 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    del waiting
    gc.collect()
    assert served.usage()["waitingRequests"] == 0
    assert gone() is None
    target.open.set()
    assert [chunk async for chunk in first][-1].completion is not None
    assert (await complete(served, REQUEST)).text
    assert served.usage()["engineRequests"] == 2
    assert served.usage()["engineTokens"] == 80


async def test_leaving_cancels_within_a_cycle(served: CompletionEngine, target: Gate) -> None:
    """Seen to fail: a worker that looks for the cancel only when it is done."""
    stream = served.stream(REQUEST)
    await anext(stream)
    target.hold()
    await stream.aclose()
    assert served.usage()["liveGenerations"] in (0, 1)
    forwards = len(target.calls)
    target.open.set()
    await until(lambda: idle(served))
    assert len(target.calls) <= forwards + 2  # the one it stood in, and one that had begun before it was held
    assert served.usage()["tokensAfterCancel"] <= DRAFT_LENGTH + 1


async def test_a_step_that_hangs_is_named(
    served: CompletionEngine, target: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To whoever waits, in its turn or for it. Seen to fail with the time counted from the request: the one that only
    waits for its turn."""
    monkeypatch.setattr(engine.service, "_HUNG_S", 0.1)
    target.hold()
    first, second = (asyncio.create_task(collect(served, REQUEST)) for _ in range(2))
    for task in (first, second):
        with pytest.raises(EngineError, match="the models hang: one step"):
            await task
    target.open.set()
    await until(lambda: idle(served))
    assert await complete(served, REQUEST)


async def test_a_long_wait_for_ones_turn_is_no_hang(
    served: CompletionEngine, target: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.service, "_HUNG_S", 0.15)
    target.delay_s = 0.03
    first, second = (asyncio.create_task(complete(served, REQUEST)) for _ in range(2))
    assert (await first).tokens == (await second).tokens == 40


async def test_a_cancelled_task_leaves_its_stream(served: CompletionEngine, target: Gate) -> None:
    target.hold()
    task = asyncio.create_task(collect(served, REQUEST))
    await until(target.entered.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    target.open.set()
    await until(lambda: idle(served))
    assert (await complete(served, REQUEST)).tokens == 40


async def test_a_long_prefill_can_be_left_between_its_chunks(served: CompletionEngine, target: Gate) -> None:
    """Seen to fail: a prefill in one piece."""
    target.hold()
    request = CompletionRequest("ab\n" * 1000, max_tokens=10)
    task = asyncio.create_task(collect(served, request))
    await until(target.entered.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    target.open.set()
    await until(lambda: idle(served))
    assert target.calls == [(PREFILL_CHUNK, 0)]
    assert served.usage()["tokensAfterCancel"] == 0


async def test_what_was_computed_is_used_again(served: CompletionEngine, target: Gate) -> None:
    """After a cancel in the prefill, and by the next keystroke. Seen to fail: a cancel that empties the cache."""
    request = CompletionRequest("ab\n" * 200, max_tokens=10)
    target.hold()
    task = asyncio.create_task(collect(served, request))
    await until(target.entered.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    target.open.set()
    await until(lambda: idle(served))
    first = await complete(served, request)
    assert target.calls.count((PREFILL_CHUNK, 0)) == 1
    typed = await complete(served, CompletionRequest(request.prefix + first.text[:2], max_tokens=10))
    assert typed.prompt_tokens - typed.reused_tokens <= 4  # what was typed, and the two markers behind it


async def test_two_hundred_cancels_at_random_moments(served: CompletionEngine, target: Gate) -> None:
    """None is left behind and none computes on: the liveness promise of the README.

    Seen to fail: `_open_jobs` emptied by the stream instead of the worker; a cancel seen only before the first step.
    """
    choose = random.Random(7)

    async def leave_early() -> None:
        request = CompletionRequest(choose.choice(CHARACTERS) * choose.randrange(1, 400), max_tokens=50)
        stream, left = served.stream(request), choose.randrange(1, 7)
        try:
            async with asyncio.timeout(choose.choice([0, 0.0005, 0.002, 0.01, None])):
                async for _ in stream:
                    left -= 1
                    if not left:
                        break
        except TimeoutError:
            pass
        finally:
            await stream.aclose()

    before = 0
    for _ in range(10):
        await asyncio.gather(*(leave_early() for _ in range(20)))
        await until(lambda: idle(served))
        after = served.usage()["tokensAfterCancel"]
        assert after - before <= 20 * (DRAFT_LENGTH + 1)
        before = after
    forwards = len(target.calls)
    assert (await complete(served, REQUEST)).tokens == 40
    assert len(target.calls) > forwards


@pytest.mark.parametrize("fault", [RuntimeError("def secret(): pass"), MemoryError(), AssertionError()])
async def test_a_fault_costs_one_request(served: CompletionEngine, target: Gate, fault: Exception) -> None:
    """And tells nothing of the user's text. Seen to fail: the worker's `except` taken out."""
    expected = await complete(served, REQUEST)
    target.fault = fault
    with pytest.raises(EngineError, match=rf"^the completion failed \({type(fault).__name__}\)$"):
        await collect(served, CompletionRequest("b", max_tokens=5))
    assert idle(served)
    assert (await complete(served, REQUEST)).text == expected.text


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
async def test_logits_that_are_not_finite(served: CompletionEngine, target: Gate, bad: float) -> None:
    """B9: an error instead of token 0 or an id out of nowhere."""
    good = target.table.clone()
    target.table[:] = bad
    for sampling in (Sampling(), Sampling("sampled", seed=1)):
        with pytest.raises(EngineError, match="FloatingPointError"):
            await collect(served, CompletionRequest("b", max_tokens=5, sampling=sampling))
    target.table[:] = good
    assert (await complete(served, REQUEST)).tokens == 40


async def test_closing_ends_the_open_streams(served: CompletionEngine, target: Gate) -> None:
    """The one being computed and those that wait. Seen to fail: the first of them waited for ever."""
    target.hold()
    tasks = [asyncio.create_task(collect(served, REQUEST)) for _ in range(3)]
    await until(target.entered.is_set)
    opener = threading.Timer(0.05, target.open.set)
    opener.start()
    served.close()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert [str(result) for result in results] == ["the engine was closed"] * 3
    assert all(isinstance(result, EngineError) for result in results)
    assert idle(served)
    assert not served.ready
    served.close()
    with pytest.raises(EngineError):
        await collect(served, REQUEST)
    with pytest.raises(EngineError):
        await served.load()


async def test_closing_while_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: `load` waited for ever, or made a closed engine ready."""
    release = threading.Event()
    monkeypatch.setattr(engine.service, "load", lambda config, report: release.wait(30) and toy_pair())
    monkeypatch.setattr(engine.service, "_CLOSE_S", 0.05)
    closing = CompletionEngine(EngineConfig())
    waiter = asyncio.create_task(closing.load())
    await asyncio.sleep(0)
    closing.close()
    with pytest.raises(EngineError, match="the engine was closed"):
        await asyncio.wait_for(waiter, 10)
    release.set()
    closing._thread.join(10)
    await asyncio.sleep(0)
    assert not closing.ready


async def test_closing_ends_a_load_at_its_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: a download went on without anybody to use it."""
    ended = threading.Event()

    def load(config: EngineConfig, report: Callable[[float, str], None]) -> LoadedPair:
        try:
            for _ in range(1000):
                time.sleep(0.01)
                report(0.0, "downloading")
        finally:
            ended.set()
        return toy_pair()

    monkeypatch.setattr(engine.service, "load", load)
    closing = CompletionEngine(EngineConfig())
    waiter = asyncio.create_task(closing.load())
    await asyncio.sleep(0.05)
    closing.close()
    assert ended.wait(2)
    with pytest.raises(EngineError, match="the engine was closed"):
        await asyncio.wait_for(waiter, 10)


async def test_who_waits_for_the_models_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: the outcome given to a waiter that is gone."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    release = threading.Event()
    monkeypatch.setattr(engine.service, "load", lambda config, report: release.wait(30) and toy_pair())
    waited = CompletionEngine(EngineConfig())
    waiter = asyncio.create_task(waited.load())
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    with pytest.raises(EngineError, match="not loaded"):
        await collect(waited, REQUEST)
    release.set()
    await waited.load()
    assert waited.ready
    assert (await complete(waited, REQUEST)).tokens == 40
    waited.close()
    assert complaints == []


async def test_a_pair_that_cannot_be_loaded() -> None:
    """The user's mistake reaches the caller as it is, and the engine can be tried again."""
    failing = CompletionEngine(EngineConfig(target="/no/such/folder"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="/no/such/folder is not a model folder"):
            await failing.load()
    assert not failing.ready
    assert failing.description == {}
    failing.close()


async def test_the_deadline_ends_the_text(served: CompletionEngine) -> None:
    done = await complete(served, CompletionRequest("ab(", max_tokens=40, deadline_s=0.0))
    assert done.stop == "deadline"
    assert done.tokens <= DRAFT_LENGTH + 1
    assert (await complete(served, CompletionRequest("ab(", max_tokens=40, deadline_s=600))).stop == "max_tokens"


async def test_the_caller_ends_the_text(served: CompletionEngine) -> None:
    """`until` is told the whole text so far, and the measurements are those of a text that has come to its end."""
    told: list[str] = []

    def until(text: str) -> bool:
        told.append(text)
        return len(text) >= 5

    done = await complete(served, CompletionRequest("ab(", max_tokens=40, until=until))
    assert done.stop == "stop"
    assert done.text == told[-1]
    assert [len(text) >= 5 for text in told] == [False] * (len(told) - 1) + [True]
    assert done.drafted == done.accepted + done.rejected + done.discarded


async def test_seeds(served: CompletionEngine) -> None:
    def request(seed: int | None) -> CompletionRequest:
        return CompletionRequest("ab(", max_tokens=30, sampling=Sampling("sampled", seed=seed))

    first, again, other = [await complete(served, request(seed)) for seed in (1, 1, 2)]
    assert first.text == again.text != other.text
    assert (first.seed, other.seed) == (1, 2)
    unseeded, repeat = [await complete(served, request(None)) for _ in range(2)]
    assert unseeded.seed != repeat.seed
    assert (await complete(served, request(unseeded.seed))).text == unseeded.text
    assert (await complete(served, REQUEST)).seed is None


async def test_the_preview_is_what_is_sent(served: CompletionEngine) -> None:
    prompt = served.preview(REQUEST)
    assert prompt.text == "<|fim_prefix|><|fim_suffix|>)\n<|fim_middle|>ab("
    assert (await complete(served, REQUEST)).prompt_tokens == prompt.tokens


MEASUREMENTS = {  # CONTRACT.md, "Measurements"
    *("text", "tokens", "drafted", "accepted", "accepted_lengths", "rejected_at", "target_forwards"),
    *("draft_ms", "verify_ms", "prefill_ms", "ttft_ms", "total_ms", "tokens_per_second", "prompt_tokens"),
    *("reused_tokens", "peak_memory_mb", "stop", "drafter", "mode", "seed", "pair"),
}


async def test_measurements(served: CompletionEngine) -> None:
    done = await complete(served, REQUEST)
    values = done.to_json()
    assert values.keys() >= MEASUREMENTS
    assert values["drafted"] == values["accepted"] + values["rejected"] + values["discarded"]
    assert 0 < values["ttft_ms"] < values["total_ms"]
    assert values["draft_ms"] + values["verify_ms"] + values["prefill_ms"] <= values["total_ms"]
    assert values["peak_memory_mb"] > 10
    assert (values["pair"], values["drafter"], values["mode"], values["stop"]) == (
        "toy", "model", "greedy", "max_tokens",
    )  # fmt: skip


async def test_the_embedded_pair(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships, through the same door: real text, guesses that come true, the next keystroke warm."""
    async with serving(pair, monkeypatch) as served:
        prefix = "def total(items):\n    result = 0\n    for item in items:\n        "
        request = CompletionRequest(prefix, "\n    return result\n", "shop/total.py", max_tokens=24)
        chunks = await collect(served, request)
        done = chunks[-1].completion
        assert "".join(chunk.text for chunk in chunks) == done.text
        assert "result" in done.text
        assert "<|" not in done.text
        assert done.accepted > 0
        assert done.target_forwards < done.tokens
        typed = await complete(
            served, CompletionRequest(prefix + done.text[:3], request.suffix, request.path, max_tokens=8)
        )
        assert typed.prompt_tokens - typed.reused_tokens < 6
        for _ in range(20):
            async for _ in served.stream(request):
                break
        await until(lambda: idle(served))
        assert served.usage()["tokensAfterCancel"] <= 20 * (pair.longest_draft + 1)


class Endless:
    """Has always something to learn."""

    def __init__(self) -> None:
        self.steps, self.during = 0, threading.Event()
        self.lessons = Lessons()

    def step(self) -> bool:
        self.steps += 1
        self.during.set()
        time.sleep(0.005)
        return True


@pytest.mark.timeout(30)
async def test_a_request_stops_the_learning_after_one_step(target: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails with a learner that is asked until it has nothing left to learn."""
    monkeypatch.setattr(engine.service, "_REST_S", 0.02)
    learner = Endless()
    pair = replace(toy_pair(target, TableRunner(seed=1)), learner=cast(Learner, learner))
    async with serving(pair, monkeypatch) as served:
        first = await complete(served, REQUEST)
        await until(learner.during.is_set)
        target.hold()
        stream = asyncio.ensure_future(complete(served, REQUEST))
        await asyncio.sleep(0)
        steps = learner.steps
        await until(target.entered.is_set)
        assert learner.steps <= steps + 1
        held = learner.steps
        await asyncio.sleep(0.05)
        assert learner.steps == held  # while it computes
        target.open.set()
        assert (await stream).token_ids == first.token_ids
        learner.during.clear()
        await until(learner.during.is_set)  # and then goes on
        assert learner.lessons.seen >= 2


async def test_nothing_is_learned_before_a_rest(target: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.service, "_REST_S", 30.0)
    learner = Endless()
    pair = replace(toy_pair(target, TableRunner(seed=1)), learner=cast(Learner, learner))
    async with serving(pair, monkeypatch) as served:
        for _ in range(3):
            await complete(served, REQUEST)
            await asyncio.sleep(0.01)
        assert learner.steps == 0
