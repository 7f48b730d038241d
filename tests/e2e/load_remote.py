"""The load test's remote engine: the toy server's process, and the same typing straight at it, without Specter."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2

from .load_session import Session
from .server import ENVIRONMENT

_HERE = Path(__file__).parent
_PROMPT = 2000  # characters before the cursor


@contextlib.contextmanager
def toy_server() -> Iterator[str]:
    """Its address, while it runs."""
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(_HERE.parent / "engine"), *sys.path])}
    command, pipe = [sys.executable, str(_HERE / "load_toy.py")], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def raw_first_texts(url: str, typed: Sequence[Session], seconds: float) -> list[float]:
    """Seconds to the first text of every stream that came to one, with a stream for each key of all sessions."""
    limits = httpx2.Limits(max_connections=512, max_keepalive_connections=64, keepalive_expiry=60.0)
    async with httpx2.AsyncClient(trust_env=False, limits=limits, timeout=30.0) as http:
        until = time.perf_counter() + seconds
        return [
            first
            for firsts in await asyncio.gather(*(_type(http, url, one, until) for one in typed))
            for first in firsts
        ]


async def _type(http: httpx2.AsyncClient, url: str, session: Session, until: float) -> list[float]:
    text, firsts = session.text, list[float]()
    asked: asyncio.Task[None] | None = None
    for key in session.keys:
        if time.perf_counter() >= until:
            break
        text += key.text
        if asked is not None:
            asked.cancel()
        asked = asyncio.create_task(_stream(http, url, text[-_PROMPT:], firsts))
        if key.stands:
            await asked
        await asyncio.sleep(key.gap_s)
    if asked is not None:
        await asked
    return firsts


async def _stream(http: httpx2.AsyncClient, url: str, prompt: str, firsts: list[float]) -> None:
    payload = {"model": "toy", "prompt": prompt, "max_tokens": 64, "temperature": 0, "stream": True}
    sent, first = time.perf_counter(), True
    async with http.stream("POST", f"{url}/v1/completions", json=payload) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {") and first and json.loads(line[6:])["choices"][0]["text"]:
                firsts.append(time.perf_counter() - sent)
                first = False
