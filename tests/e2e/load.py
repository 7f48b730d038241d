"""Many editors on one server: `python -m tests.e2e.load --clients 32 [--remote] [--seconds N]`, on an idle machine.

Starts `specter serve --tcp`, types a real module in each client as VS Code does (didChange, cancel, request), and
checks that every request had one reply and its own, that nobody waits much longer than the others, and that the
engine comes to rest. With `--remote`, the engine is a toy server of completions over HTTP, and the time to the first
text is compared with plain streams from it. Prints a table; the last line is one JSON document. Exit code 1 if a
check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from .load_client import STANDS_S, Client
from .load_remote import raw_first_texts, toy_server
from .load_session import sessions
from .server import ENVIRONMENT, LISTENING, READY_S, TCP_COMMAND

FAIREST = 3.0  # the slowest client's median wait, in medians of all
REMOTE_RATIO = 1.3  # time to the first text, p95, through Specter and straight
_MOST_CLIENTS = 64  # each with a module of its own
_MOST_S = 400  # of the shortest session
_LEAST_WAITS = 3  # of a client whose median says something
_REST_S = 5.0  # from the last reply to an engine at rest


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured, for the table, and one line for each check that failed."""

    values: dict[str, Any]
    failures: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, help="editors (32; with --remote 64)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of typing (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the sessions and their pace (1)")
    parser.add_argument("--remote", action="store_true", help="the engine is a server of completions over HTTP")
    arguments = parser.parse_args()
    clients = arguments.clients or (64 if arguments.remote else 32)
    if not (1 <= clients <= _MOST_CLIENTS and 1 <= arguments.seconds <= _MOST_S):
        parser.error(f"give 1 to {_MOST_CLIENTS} clients and 1 to {_MOST_S} seconds")
    run = remote if arguments.remote else local
    load = asyncio.run(run(clients, arguments.seconds, arguments.seed))
    for name, value in load.values.items():
        print(f"{name:52} {value}")
    for failure in load.failures:
        print(f"FAILED: {failure}")
    print(json.dumps(load.values | {"failures": load.failures}))
    return 1 if load.failures else 0


async def local(clients: int, seconds: float, seed: int = 1) -> Load:
    """The embedded pair computes, for one client after another."""
    return (await _typing(clients, seconds, seed, []))[0]


async def remote(clients: int, seconds: float, seed: int = 1) -> Load:
    """A server of completions computes: first straight, then through Specter, with the same keys."""
    with toy_server() as url:
        raw = await raw_first_texts(url, sessions(clients, seed), seconds)
        load, firsts = await _typing(clients, seconds, seed, ["--server-url", url])
    values, failures = dict(load.values), list(load.failures)
    if not raw or not firsts:
        return Load(values, [*failures, f"texts came for {len(firsts)} requests, and straight for {len(raw)}"])
    ratio = p95(firsts) / p95(raw)
    values |= {
        "streams with a text, straight": len(raw),
        "requests with a text, through Specter": len(firsts),
        "first text, straight, ms p50": _ms(statistics.median(raw)),
        "first text, straight, ms p95": _ms(p95(raw)),
        "first text, through Specter, ms p50": _ms(statistics.median(firsts)),
        "first text, through Specter, ms p95": _ms(p95(firsts)),
        "first text, p95, through Specter / straight": round(ratio, 2),
    }
    if not ratio <= REMOTE_RATIO:
        failures.append(f"the first text takes {ratio:.2f} times as long as straight, over {REMOTE_RATIO}")
    return Load(values, failures)


async def _typing(count: int, seconds: float, seed: int, options: Sequence[str]) -> tuple[Load, list[float]]:
    """The load, and the seconds to the first text of every request that came to one."""
    typed = sessions(count, seed)
    words = [session.word for session in typed]
    clients = [Client(number, session, words) for number, session in enumerate(typed)]
    before = os.getloadavg()[0]
    async with _server(options) as (host, port, process), asyncio.timeout(READY_S + seconds + 3 * STANDS_S):
        try:
            await asyncio.gather(*(client.start(host, port) for client in clients))
            busy, began = process.cpu_times(), time.perf_counter()
            lags, memory = list[float](), list[int]()
            watching = [
                asyncio.create_task(_measure_lag(lags)),
                asyncio.create_task(_measure_memory(process, memory, seconds / 5)),
            ]
            await asyncio.gather(*(client.type(began + seconds) for client in clients))
            for task in watching:
                task.cancel()
            typing_s = time.perf_counter() - began
            live = await _rest(clients[0])
            memory.append(process.memory_info().rss)
            spent = process.cpu_times()
            stats = [await client.ask("specter/stats", {}) for client in clients]
        finally:
            await asyncio.gather(*(client.stop() for client in clients))
    values, failures = _judged(clients, live)
    values |= _rates(stats, typing_s)
    values["resident memory, MB, each fifth of the time"] = [size >> 20 for size in memory]
    computed = spent.user + spent.system - busy.user - busy.system
    values["the server's processor time per request, ms"] = _ms(computed / max(values["requests"], 1))
    values["lag of the clients themselves, ms p95"] = _ms(p95(lags))
    values |= {"load of the machine before": round(before, 2)}
    return Load(values, failures), [first for client in clients for first in client.first_texts()]


def _rates(stats: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What a plan for many developers needs: of each client, by its own counts and the engine's, which are of all."""
    requests, engine = sum(each["requests"] for each in stats), stats[0]
    return {
        "requests a second, of each client": _two(requests / len(stats) / seconds),
        "share of them typed through": _two(sum(each["typedThrough"] for each in stats) / max(requests, 1)),
        "share of them that reached the engine": _two(engine["engineRequests"] / max(requests, 1)),
        "requests a second that reached it, of each client": _two(engine["engineRequests"] / len(stats) / seconds),
        "tokens of each that did": _two(engine["engineTokens"] / max(engine["engineRequests"], 1)),
    }


def _judged(clients: Sequence[Client], live: int) -> tuple[dict[str, Any], list[str]]:
    faults = [fault for client in clients for fault in client.faults()]
    failures = faults[:20] + ([f"and {len(faults) - 20} more"] if len(faults) > 20 else [])
    if live:
        failures.append(f"{live} generations are live {_REST_S:.0f} s after the last reply")
    silent = [client.number for client in clients if not client.waits()]
    if silent:
        failures.append(f"no answer to a request left standing: clients {silent}")
    unmarked = [client.number for client in clients if not client.marked]
    if 2 * len(unmarked) > len(clients):
        failures.append(f"no reply with its client's own word, so crossed ones could go unnoticed: clients {unmarked}")
    # Of a few waits each, the slowest client is who happened to ask at the worst moment.
    judged = [client for client in clients if len(client.waits()) >= _LEAST_WAITS]
    medians = [statistics.median(client.waits()) for client in judged]
    everybody = [wait for client in clients for wait in client.waits()]
    unfair = max(medians) / statistics.median(everybody) if medians else float("nan")
    if unfair > FAIREST:
        failures.append(f"the slowest client waits {unfair:.2f} times the median of all, over {FAIREST}")
    return {
        "clients": len(clients),
        "requests": sum(len(client.asked) for client in clients),
        "replies": sum(client.replies.total() for client in clients),
        "of them with the client's own word": sum(client.marked for client in clients),
        "left standing": len(everybody),
        "wait for the reply, ms p50": _ms(statistics.median(everybody)) if everybody else None,
        "wait for the reply, ms p95": _ms(p95(everybody)),
        "wait of the fastest client, ms median": _ms(min(medians, default=float("nan"))),
        "wait of the slowest client, ms median": _ms(max(medians, default=float("nan"))),
        "slowest client / median of all": round(unfair, 2),
        "live generations at the end": live,
    }, failures


async def _rest(client: Client) -> int:
    """Live generations once the engine rests, or after a while; late and double replies have come by then."""
    await asyncio.sleep(0.5)
    started = time.perf_counter()
    while live := (await client.ask("specter/stats", {}))["liveGenerations"]:
        if time.perf_counter() - started > _REST_S:
            break
        await asyncio.sleep(0.05)
    return int(live)


@contextlib.asynccontextmanager
async def _server(options: Sequence[str]) -> AsyncIterator[tuple[str, int, psutil.Process]]:
    """A server's address and process; it ends with the context."""
    process = await asyncio.create_subprocess_exec(
        *TCP_COMMAND, *options, stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(READY_S):
            line = (await process.stderr.readline()).decode()
        found = LISTENING.search(line)
        assert found, f"no address: {line!r}"
        drain = asyncio.create_task(process.stderr.read())
        yield found[1], int(found[2]), psutil.Process(process.pid)
        drain.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _measure_lag(lags: list[float]) -> None:
    """How late this process comes to what is due: part of every time that it takes."""
    while True:
        due = time.perf_counter() + 0.05
        await asyncio.sleep(0.05)
        lags.append(time.perf_counter() - due)


async def _measure_memory(process: psutil.Process, sizes: list[int], pause_s: float) -> None:
    """Bytes that are resident, now and after each pause."""
    while True:
        sizes.append(process.memory_info().rss)
        await asyncio.sleep(pause_s)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else float("nan")


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def _two(value: float) -> float:
    return round(value, 2)


if __name__ == "__main__":
    sys.exit(main())
