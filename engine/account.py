"""What came of an engine's requests: how many there were, their tokens, and how fast the cancelled ones ended."""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import Any, TypeVar

from engine.request import Chunk

_T = TypeVar("_T")


class Account:
    """All requests, and the latest thousand cancels."""

    def __init__(self) -> None:
        self._requests = self._tokens = self._tokens_after_cancel = 0
        self._ms: deque[float] = deque(maxlen=1000)

    def begun(self) -> None:
        """Something is computed for a request."""
        self._requests += 1

    def computed(self, tokens: int) -> None:
        self._tokens += tokens

    def cancelled(self, cancelled_at: float, tokens: int) -> None:
        """`cancelled_at` is a time.perf_counter(); `tokens` were computed after it."""
        self._ms.append(1000 * (time.perf_counter() - cancelled_at))
        self._tokens_after_cancel += tokens

    async def counting(self, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
        """The same chunks; leaving them is counted when they are closed, after which nothing is computed."""
        left_at = 0.0

        def leave() -> None:
            nonlocal left_at
            left_at = time.perf_counter()

        self.begun()
        try:
            async with aclosing(chunks):
                while True:
                    try:
                        chunk = await _noting(anext(chunks), leave)
                    except StopAsyncIteration:
                        return
                    self.computed(chunk.tokens)
                    try:
                        yield chunk
                    except GeneratorExit:
                        leave()
                        raise
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled(left_at, 0)
            raise

    def to_json(self) -> dict[str, Any]:
        times = sorted(self._ms)
        share = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        at = {name: times[round(part * (len(times) - 1))] if times else 0.0 for name, part in share.items()}
        return {
            "engineRequests": self._requests,
            "engineTokens": self._tokens,
            "tokensAfterCancel": self._tokens_after_cancel,
            "cancelToIdleMs": {name: round(ms, 2) for name, ms in at.items()},
        }


@types.coroutine
def _noting(step: Awaitable[_T], cancelled: Callable[[], object]) -> Generator[Any, Any, _T]:
    """Awaits the step. `cancelled` is called when its task is cancelled, before the step itself hears of it: what the
    step does then, such as closing a connection, is part of the time."""
    inside = step.__await__()
    try:
        waits_for = next(inside)
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                cancelled()
                waits_for = inside.throw(error)
            else:
                waits_for = inside.send(sent)
    except StopIteration as end:
        result: _T = end.value
        return result
