"""Specter's own share of the time that a server takes: its stream against the raw one, in turn, in one run."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.holes import Hole
from engine.interface import EngineError
from engine.remote import RemoteEngine
from engine.remote.metrics import read_metrics
from engine.request import CompletionRequest


class Timed(NamedTuple):
    """Milliseconds from the request to the first event with text, and to the end; tokens as the server counts them."""

    ttft_ms: float
    total_ms: float
    tokens: int


class Pair(NamedTuple):
    """One hole, streamed by Specter and raw."""

    hole: Hole
    specter: Timed
    raw: Timed


def measure(config: EngineConfig, holes: Sequence[Hole], tokens: int, each: Callable[[Pair], None]) -> dict[str, Any]:
    """The JSON document; null is what the server does not tell. Raises ConfigError and EngineError."""
    return asyncio.run(_measure(config, holes, tokens, each))


async def _measure(
    config: EngineConfig, holes: Sequence[Hole], tokens: int, each: Callable[[Pair], None]
) -> dict[str, Any]:
    engine = RemoteEngine(config)
    await engine.load()
    server = engine.server
    if server is None:
        raise EngineError(engine.trouble)
    before = await read_metrics(engine.client)
    pairs = list[Pair]()
    for index, hole in enumerate(holes):
        request = CompletionRequest(hole.prefix, hole.suffix, hole.path, sampling=config.sampling, max_tokens=tokens)
        await _specter(engine, request)  # the prompt is in the server's cache for both, as after a keystroke
        if index % 2:
            raw = await _raw(engine, request)
            pairs.append(Pair(hole, await _specter(engine, request), raw))
        else:
            pairs.append(Pair(hole, await _specter(engine, request), await _raw(engine, request)))
        each(pairs[-1])
    after = await read_metrics(engine.client)
    acceptance = None
    if before and after and after.drafted is not None and after.accepted is not None and after.drafted:
        drafted = after.drafted - (before.drafted or 0)
        acceptance = round((after.accepted - (before.accepted or 0)) / drafted, 4) if drafted else None
    engine.close()
    return {
        "server": {
            "host": engine.client.host,
            "kind": server.kind,
            "model": server.model,
            "prompt": server.layout.name,
        },
        "holes": len(pairs),
        "ttft_ms": _medians([pair.specter.ttft_ms for pair in pairs], [pair.raw.ttft_ms for pair in pairs]),
        "tokens_per_second": _medians([_speed(pair.specter) for pair in pairs], [_speed(pair.raw) for pair in pairs]),
        "overhead": {
            "ttft_ms": round(statistics.median(pair.specter.ttft_ms - pair.raw.ttft_ms for pair in pairs), 3),
            "total_share": round(statistics.median(pair.specter.total_ms / pair.raw.total_ms - 1 for pair in pairs), 4),
        },
        "acceptance": acceptance,
    }


async def _specter(engine: RemoteEngine, request: CompletionRequest) -> Timed:
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            last = chunk
    assert last.completion is not None
    return Timed(last.completion.ttft_ms, last.completion.total_ms, last.completion.tokens)


async def _raw(engine: RemoteEngine, request: CompletionRequest) -> Timed:
    """The same request, its bytes read and no more."""
    payload = await engine.payload(request)
    began, first_ms, tokens = time.perf_counter(), 0.0, 0
    body = bytearray()
    async with engine.client.raw(payload) as response:
        async for chunk in response.aiter_raw():
            if not first_ms and b'"text":' in chunk:
                first_ms = 1000 * (time.perf_counter() - began)
            body += chunk
    total_ms = 1000 * (time.perf_counter() - began)
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            usage = json.loads(line[6:]).get("usage") or {}
            tokens = max(tokens, usage.get("completion_tokens", 0))
    return Timed(first_ms or total_ms, total_ms, tokens)


def _speed(timed: Timed) -> float:
    return 1000 * timed.tokens / timed.total_ms


def _medians(specter: list[float], raw: list[float]) -> dict[str, float]:
    return {"specter": round(statistics.median(specter), 3), "raw": round(statistics.median(raw), 3)}
