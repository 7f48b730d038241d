"""The engine as its users see it: an asynchronous stream over one worker thread that owns the models."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.account import Account
from engine.config import EngineConfig
from engine.generation import encode, generate, prompt_room
from engine.interface import EngineError as EngineError
from engine.loading import LoadedPair, load, load_small
from engine.prompt import EncodedPrompt
from engine.request import Chunk, CompletionRequest
from engine.sources import Report

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_CLOSED = "the engine was closed"
_REST_S = 1.0  # without a request: whoever types does not want the processor to be busy at the next key
_HUNG_S = 30.0  # for one step: a chunk of a prompt, or a cycle


@dataclass(slots=True, eq=False)
class _Job:
    """A stream between its two ends: the worker makes chunks, the event loop takes them."""

    request: CompletionRequest | None  # none once it was cancelled while it waited: behind many, texts are megabytes
    loop: asyncio.AbstractEventLoop
    chunks: asyncio.Queue[Chunk | Exception] = field(default_factory=asyncio.Queue)
    live: bool = False  # from its first step on the worker until nothing more is computed for it
    cancelled_at: float | None = None  # time.perf_counter(); set by the loop, read by the worker after each step

    def cancel(self) -> None:
        self.cancelled_at = self.cancelled_at or time.perf_counter()
        self.request = None

    def post(self, item: Chunk | Exception) -> None:
        try:
            self.loop.call_soon_threadsafe(self.chunks.put_nowait, item)
        except RuntimeError:  # the loop is closed: nobody waits for it any more
            self.cancel()


class CompletionEngine:
    """Streams completions of one pair. Requests are served one after another, in the order they came.

    Leaving a stream cancels it within one cycle, or half a layer of a prompt's piece; what was computed stays in the
    cache for the next request. All methods belong to the event loop's thread.
    """

    def __init__(self, config: EngineConfig, account: Account | None = None) -> None:
        """account: where to count, if not by itself."""
        self._config = config
        self._pair: LoadedPair | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="specter-engine", daemon=True)
        self._open_jobs: set[_Job] = set()
        self._loads: set[Callable[[Exception], None]] = set()  # each fails one waiting `load`
        self._account = Account() if account is None else account
        self._watchers: list[Callable[[], None]] = []
        self._closed = False
        self._step_began: float | None = None  # time.perf_counter(); of the step the worker is in
        self._thread.start()

    @property
    def ready(self) -> bool:
        return self._pair is not None

    trouble = ""  # what is wrong with a pair is said when it is loaded

    def watch(self, changed: Callable[[], None]) -> None:
        """Only where memory gets short: then there is another pair, with a notice."""
        self._watchers.append(changed)

    @property
    def description(self) -> dict[str, str]:
        """pair, device, dtype and drafter, once loaded, and a notice if there is something to be said of them."""
        if self._pair is None:
            return {}
        pair = self._pair
        notice = {"notice": pair.notice} if pair.notice else {}
        return notice | {"pair": pair.name, "device": pair.device, "dtype": pair.dtype, "drafter": pair.drafter_name}

    @property
    def reads_other_files(self) -> bool:
        """Whether the model was trained to see pieces of other files before the document."""
        return self._pair is not None and self._pair.reads_other_files

    def prompt_room(self, max_tokens: int) -> int:
        """Tokens of the longest prompt beside a completion of `max_tokens`, once loaded."""
        return 0 if self._pair is None else prompt_room(self._pair, max_tokens)

    async def load(self, report: Report = lambda *_: None) -> None:
        """Loads the models on the worker thread; `report` is called on the event loop. Raises ConfigError, and
        EngineError if the engine is closed meanwhile.
        """
        if self._closed:
            raise EngineError(_CLOSED)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[LoadedPair] = loop.create_future()

        def settle(outcome: LoadedPair | Exception) -> None:
            if done.done():  # the waiter was cancelled, or the engine closed
                return
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

        def work() -> None:
            outcome: LoadedPair | Exception
            try:
                outcome = load(self._config, lambda *progress: self._report(loop, report, *progress))
            except Exception as error:
                outcome = error
            _post(loop, settle, outcome)

        def fail(error: Exception) -> None:
            _post(loop, settle, error)

        self._loads.add(fail)
        self._work.put(work)
        try:
            pair = await done
        finally:
            self._loads.discard(fail)
        if self._closed:
            raise EngineError(_CLOSED)
        self._pair = pair

    def _report(self, loop: asyncio.AbstractEventLoop, report: Report, fraction: float, what: str) -> None:
        """On the worker, while it loads."""
        if self._closed:
            raise EngineError(_CLOSED)  # ends a download, see engine.download
        _post(loop, report, fraction, what)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The completion's text as it becomes certain; the last chunk carries its measurements. Raises EngineError."""
        if self._pair is None or self._closed:
            raise EngineError("the engine is not loaded")
        job = _Job(request, asyncio.get_running_loop())
        self._open_jobs.add(job)
        self._work.put(lambda: self._complete(job))
        try:
            while True:
                item = await self._next(job)
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.completion:
                    return
        finally:
            job.cancel()

    async def _next(self, job: _Job) -> Chunk | Exception:
        """What comes next of a job, its turn included; an error if the models hang."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HUNG_S):
                    return await job.chunks.get()
            began = self._step_began
            if began is not None and time.perf_counter() - began > _HUNG_S:
                log.error("a step of the models has lasted for over %.0f s", _HUNG_S)
                return EngineError(
                    f"the models hang: one step has lasted for over {_HUNG_S:.0f} s; restart the engine, or choose a "
                    "smaller pair"
                )

    def preview(self, request: CompletionRequest) -> EncodedPrompt:
        """Exactly the prompt that a stream of this request would send."""
        if self._pair is None:
            raise EngineError("the engine is not loaded")
        return encode(self._pair, request)

    @property
    def uses_workspace(self) -> bool:
        """Whether guesses are looked for in the workspace index."""
        return self._pair is not None and self._pair.drafter_name in ("workspace", "merged")

    def index(self, texts: Mapping[str, str]) -> bool:
        """Puts texts into the workspace index by name, in place of those of the same names; an empty one is removed.

        For any one thread: it takes a second for a million characters. False if some had no room.
        """
        pair = self._pair
        if pair is None:
            return True
        return pair.workspace.update({name: pair.prompts.plain(text) for name, text in texts.items()})

    def usage(self) -> dict[str, Any]:
        """`liveGenerations` (being computed), `waitingRequests`, `tokensAfterCancel`, and `cancelToIdleMs` {p50, p99,
        max} of the latest cancels."""
        jobs = list(self._open_jobs)
        waiting = sum(not job.live and job.cancelled_at is None for job in jobs)
        return {"liveGenerations": sum(job.live for job in jobs), "waitingRequests": waiting} | self._account.to_json()

    def close(self) -> None:
        """Ends the worker after the step it is in, fails the open streams and frees the models. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._work.put(None)
        self._thread.join(_CLOSE_S)  # a load ends at its next report, and the thread is a daemon
        for fail in (*self._loads, *(job.post for job in list(self._open_jobs))):
            fail(EngineError(_CLOSED))
        self._open_jobs.clear()
        self._pair = None

    def _run(self) -> None:
        while (work := self._next_work()) is not None and not self._closed:
            work()

    def _next_work(self) -> Callable[[], None] | None:
        """Waits for it. When there is none for a while, the draft model learns, until there is."""
        learner = None if self._pair is None else self._pair.learner
        if learner is not None:
            with suppress(queue.Empty):
                return self._work.get(timeout=_REST_S)
            while self._work.empty() and learner.step():
                pass
        return self._work.get()

    def _complete(self, job: _Job) -> None:
        """On the worker: one job to its end or cancel."""
        last: Chunk | Exception | None = None
        try:
            request = job.request
            if request is not None and self._pair is not None:
                job.live = True
                self._account.begun()
                last = self._decode(job, request, self._pair)
        except torch.OutOfMemoryError:
            last = self._go_small(job.loop)
        except Exception as error:
            log.warning("a completion failed (%s)", type(error).__name__)  # its message might quote the text
            log.debug("a completion failed", exc_info=error)
            last = EngineError(f"the completion failed ({type(error).__name__})")
        finally:
            self._open_jobs.discard(job)
        if last is None and job.cancelled_at is None:  # `close` no longer sees it among the open ones
            last = EngineError(_CLOSED)
        if last is not None:
            job.post(last)

    def _go_small(self, loop: asyncio.AbstractEventLoop) -> EngineError:
        """Another program has taken the GPU's memory: goes on with what works beside it."""
        self._pair = None
        try:
            self._pair = load_small(self._config)
        except Exception as error:
            log.error("nothing could be loaded in place of the models (%s)", type(error).__name__)
            return EngineError("memory is short, and no other models could be loaded; restart the engine")
        log.warning("%s", self._pair.notice)
        for changed in self._watchers:
            _post(loop, changed)
        return EngineError(self._pair.notice)

    def _decode(self, job: _Job, request: CompletionRequest, pair: LoadedPair) -> Chunk | None:
        """Posts the chunks as they come; returns the last one, or None if the job was cancelled."""
        with closing(generate(pair, request, pair.drafter(request))) as chunks:
            for chunk in self._timed(chunks):
                self._account.computed(chunk.tokens)
                if chunk.completion is not None:
                    pair.remember(request, chunk.completion)
                    return chunk
                if job.cancelled_at is not None or self._closed:
                    break
                if chunk.text:
                    job.post(chunk)
        self._account.cancelled(job.cancelled_at or time.perf_counter(), chunk.tokens)
        return None

    def _timed(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The chunks, with the beginning of each step noted for `_next`."""
        try:
            self._step_began = time.perf_counter()
            for chunk in chunks:
                self._step_began = None
                yield chunk
                self._step_began = time.perf_counter()
        finally:
            self._step_began = None


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Calls on the loop's thread, if the loop still runs."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)
