"""How the tests of engines ask for a completion, and wait for what sends no message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from engine.interface import Engine
from engine.record import Completion
from engine.request import CompletionRequest

REQUEST = CompletionRequest("def add(a, b):\n    return", "\n", "sums.py", max_tokens=16)


async def complete(engine: Engine, request: CompletionRequest = REQUEST) -> Completion:
    """The measurements; the pieces of the text are the whole."""
    text, completion = "", None
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            text += chunk.text
            completion = chunk.completion
    assert completion is not None
    assert completion.text == text
    return completion


async def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Lets the loop turn until it holds: what happens on another thread or program sends no message."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
