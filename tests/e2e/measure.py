"""The server's times in a typing session, on the embedded pair: `python -m tests.e2e.measure`, on an idle machine.

Types a real file key by key as VS Code does (didChange, cancel, request), eight keys a second, and takes the times at
the client. Prints a table; the last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil

from .raw_client import RawClient, completion_params
from .server import OPTIONS

_KEY_S = 0.125
_URI = "file:///w/session.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=400, help="keys to type")
    parser.add_argument("--rounds", type=int, default=0, help="open, complete and close so often (10,000 take an hour)")
    parser.add_argument("--cancels", type=int, default=200, help="requests cancelled at random moments")
    parser.add_argument("--cache-mb", type=int, help="of documents completed before, instead of the default")
    arguments = parser.parse_args()
    cache = {} if arguments.cache_mb is None else {"cacheMb": arguments.cache_mb}
    with RawClient() as client:
        client.start(initializationOptions=OPTIONS | cache)
        results: dict[str, Any] = typing(client, arguments.keys)
        results |= first_texts(client)
        results |= edits(client)
        results |= cancels(client, arguments.cancels)
        if arguments.rounds:
            results |= rounds(client, arguments.rounds)
        client.stop()
    for name, value in results.items():
        print(f"{name:44} {value}")
    print(json.dumps(results))


def typing(client: RawClient, keys: int) -> dict[str, Any]:
    """The second half of a real module, typed behind its first half; one key in fifty is wrong and deleted again."""
    lines = Path(textwrap.__file__).read_text().splitlines(keepends=True)
    half = next(number for number, line in enumerate(lines) if number > len(lines) // 2 and line.startswith("def "))
    client.open(_URI, "".join(lines[:half]))
    line, character, asked = half, 0, None
    through, anew = list[float](), list[float]()
    rng = random.Random(1)
    for number, key in enumerate("".join(lines[half:])[:keys]):
        due = time.perf_counter() + _KEY_S
        if rng.random() < 0.02:
            change(client, _URI, line, character, "~")
            time.sleep(_KEY_S)
            change(client, _URI, line, character, "", character + 1)
        change(client, _URI, line, character, key)
        line, character = (line + 1, 0) if key == "\n" else (line, character + 1)
        if asked is not None:
            client.notify("$/cancelRequest", {"id": asked})
        before = client.ask("specter/stats", {})
        sent = time.perf_counter()
        asked = client.request(
            "textDocument/inlineCompletion",
            completion_params(_URI, line, character, partialResultToken=f"t{number}"),
        )
        reply = arrival(client, asked, f"t{number}", until=due)
        after = client.ask("specter/stats", {})
        if after["typedThrough"] > before["typedThrough"]:
            if reply is not None:
                through.append(1000 * (reply - sent))
        elif reply is not None:
            anew.append(1000 * (reply - sent))
        time.sleep(max(due - time.perf_counter(), 0.0))
        client.frames.clear()
    return {
        "requests": keys,
        "typed through: answers": len(through),
        "typed through, ms p50": at(through, 50),
        "typed through, ms p95": at(through, 95),
        "asked anew: with text before the next key": len(anew),
    }


def first_texts(client: RawClient, count: int = 30) -> dict[str, Any]:
    """A key, a request, and nothing until it has ended: the first text at the client, and in the engine's own count."""
    uri, text = "file:///w/first.py", Path(textwrap.__file__).read_text()
    client.open(uri, text)
    lines = text.count("\n")
    client.request("textDocument/inlineCompletion", completion_params(uri, lines, 0))
    seen, engine = list[float](), list[float]()
    for number in range(count):
        change(client, uri, lines, number, chr(ord("a") + number % 26))
        sent, token = time.perf_counter(), f"f{number}"
        asked = client.request(
            "textDocument/inlineCompletion", completion_params(uri, lines, number + 1, partialResultToken=token)
        )
        reply = arrival(client, asked, token, until=sent + 20)
        client.reply(asked)
        last = client.ask("specter/stats", {})["last"]
        if reply is not None and last is not None:
            seen.append(1000 * (reply - sent))
            engine.append(last["ttft_ms"])
        client.frames.clear()
    return {
        "first text after a key, ms p50": at(seen, 50),
        "of it the engine, to its first token, ms p50": at(engine, 50),
    }


def edits(client: RawClient) -> dict[str, Any]:
    """didChange on a document of 1 MB: the time until the next message is answered, less that without an edit."""
    uri, text = "file:///w/large.py", "value = compute(alpha, beta)\n" * 36_000
    client.open(uri, text)
    client.fence()
    results = {}
    for name, busy in (("idle", False), ("while a generation runs", True)):
        times, base = list[float](), list[float]()
        for number in range(150):
            if busy:
                client.request("textDocument/inlineCompletion", completion_params(_URI, 5, 0))
            started = time.perf_counter()
            client.fence()
            base.append(1000 * (time.perf_counter() - started))
            line = (7919 * number) % 35_000
            started = time.perf_counter()
            change(client, uri, line, 5, "x")
            client.fence()
            times.append(1000 * (time.perf_counter() - started))
            client.frames.clear()
        results[f"didChange on 1 MB, {name}, ms p95"] = round(at(times, 95) - at(base, 50), 2)
    return results


def cancels(client: RawClient, count: int) -> dict[str, Any]:
    rng = random.Random(2)
    for number in range(count):
        asked = client.request("textDocument/inlineCompletion", completion_params(_URI, number % 200, 0))
        time.sleep(rng.uniform(0, 0.3))
        client.notify("$/cancelRequest", {"id": asked})
        client.reply(asked)
        client.frames.clear()
    stats = client.ask("specter/stats", {})
    idle = stats["cancelToIdleMs"]
    return {"cancel to idle, ms p50": round(idle["p50"], 1), "cancel to idle, ms p99": round(idle["p99"], 1)}


def rounds(client: RawClient, count: int) -> dict[str, Any]:
    """Resident memory over rounds of open, complete and close; the documents are long enough to fill the cache that
    keeps them within the first tenth."""
    process = psutil.Process(client.process.pid)
    after_thousand, started = 0, time.perf_counter()
    for number in range(count):
        uri = f"file:///w/round{number}.py"
        text = "".join(f"def f{number}_{line}(x):\n    return x + {line * number}\n\n\n" for line in range(6))
        client.open(uri, f"{text}print(")
        client.ask("textDocument/inlineCompletion", completion_params(uri, 24, 6))
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        client.frames.clear()
        if number == min(1000, count // 10):
            after_thousand = process.memory_info().rss
    growth = process.memory_info().rss / after_thousand - 1
    return {
        "rounds of open, complete, close": count,
        "seconds": round(time.perf_counter() - started),
        "growth of memory after the first tenth, %": round(100 * growth, 2),
        "resident memory, MB": round(process.memory_info().rss / 2**20),
    }


def change(client: RawClient, uri: str, line: int, character: int, text: str, end: int | None = None) -> None:
    span = {
        "start": {"line": line, "character": character},
        "end": {"line": line, "character": character if end is None else end},
    }
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"range": span, "text": text}]},
    )


def arrival(client: RawClient, asked: Any, token: str, until: float) -> float | None:
    """When the first text for a request came; None if none had come in time."""

    def text(frames: list[Any]) -> bool:
        for frame in frames:
            if frame.get("method") == "$/progress" and frame["params"]["token"] == token:
                return True
            if frame.get("id") == asked and "method" not in frame:
                return True
        return False

    try:
        client.wait(text, "text", max(until - time.perf_counter(), 0.001))
    except AssertionError:
        return None
    arrived = time.perf_counter()
    replied = [frame for frame in client.frames if frame.get("id") == asked and "method" not in frame]
    if replied and not replied[0].get("result", {}).get("items"):
        return None
    return arrived


def at(values: list[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100)[percent - 1], 2) if len(values) > 1 else -1.0


if __name__ == "__main__":
    main()
