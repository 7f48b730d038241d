"""`specter/stats`: every field of the contract, counts that follow what the editor reports, and no text."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio

from .client import EditorClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIELDS = {
    "requests",
    "completions",
    "cancelled",
    "superseded",
    "liveGenerations",
    "tokensAfterCancel",
    "cancelToIdleMs",
    "shown",
    "accepted",
    "partlyAccepted",
    "rejected",
    "byLanguage",
    "byDrafter",
    "last",
}
MEASUREMENTS = {
    "tokens",
    "drafted",
    "accepted",
    "accepted_lengths",
    "rejected_at",
    "target_forwards",
    "draft_ms",
    "verify_ms",
    "prefill_ms",
    "ttft_ms",
    "total_ms",
    "tokens_per_second",
    "prompt_tokens",
    "reused_tokens",
    "peak_memory_mb",
    "stop",
    "drafter",
    "mode",
    "seed",
    "pair",
}
TEXT = "def secret_of_the_user(first, second):\n    return "
COUNTS = ("requests", "completions", "shown", "accepted", "partlyAccepted", "rejected")


@pytest_asyncio.fixture(loop_scope="session")
async def client(tcp_server):
    """An editor with counts of its own, all 0."""
    client = await EditorClient().connect(*tcp_server)
    yield await client.ready()
    await client.end()


async def test_fresh_counts_are_0(client):
    stats = await client.stats()
    assert set(stats) >= FIELDS
    assert [stats[name] for name in COUNTS] == [0] * len(COUNTS)
    assert stats["last"] is None
    assert set(stats["cancelToIdleMs"]) == {"p50", "p99", "max"}


async def test_every_measurement_and_no_text(client):
    """Seen to fail with the completion's own JSON, which holds its text."""
    document = client.open("file:///w/stats.py", TEXT)
    item = await document.complete()
    stats = await client.stats()
    last = stats["last"]
    assert set(last) >= MEASUREMENTS
    assert not {"text", "token_ids"} & set(last)
    assert last["drafted"] == last["accepted"] + last["rejected"] + last["discarded"]
    assert sum(last["accepted_lengths"]) == last["accepted"]
    assert last["pair"] == "embedded"
    assert last["tokens"] > 0
    assert last["total_ms"] >= last["ttft_ms"] > 0
    assert stats["liveGenerations"] == 0
    said = json.dumps(stats)
    assert "secret_of_the_user" not in said
    assert item["insertText"] not in said
    assert "stats.py" not in said


async def test_what_became_of_the_suggestions_is_counted(client):
    """Shown, accepted in part, accepted, rejected; each once, whoever repeats himself. Seen to fail with counts per
    message instead of per suggestion."""
    document = client.open("file:///w/fate.py", TEXT)
    item = await document.complete()
    for _ in range(2):
        client.shown(item)
        client.partially_accepted(item, 1)
        await client.execute(item["command"])
    stats = await client.stats()
    assert [stats[name] for name in COUNTS] == [1, 1, 1, 1, 1, 0]
    assert stats["byLanguage"]["python"]["accepted"] == 1
    (drafter,) = stats["byDrafter"].values()
    assert (drafter["shown"], drafter["accepted"], drafter["partlyAccepted"]) == (1, 1, 1)

    other = client.open("file:///w/fate.js", "function add(first, second) {\n  return ", "javascript")
    item = await other.complete()
    client.shown(item)
    await client.execute({"command": "specter.rejected", "arguments": item["command"]["arguments"]})
    await client.execute({"command": "specter.accepted", "arguments": ["never offered"]})
    stats = await client.stats()
    assert [stats[name] for name in COUNTS] == [2, 2, 2, 1, 1, 1]
    assert stats["byLanguage"]["javascript"]["rejected"] == 1
    assert stats["byLanguage"]["javascript"]["accepted"] == 0


async def test_accepting_as_an_editor_does(client):
    """The edit and the command, in whole and in parts; the server's copy of the document follows."""
    document = client.open("file:///w/accept.py", TEXT)
    item = await document.complete()
    await document.accept(item)
    assert (await client.context(document.uri, document.position))["prefix"] == TEXT + item["insertText"]

    document = client.open("file:///w/part.py", "")
    item = await document.complete()
    assert len(item["insertText"]) > 10
    document.accept_part(item, 5)
    assert (await client.context(document.uri, document.position))["prefix"] == item["insertText"][:5]
    stats = await client.stats()
    assert (stats["accepted"], stats["partlyAccepted"]) == (1, 1)


async def test_cancelled_and_superseded_are_counted_apart(client):
    document = client.open("file:///w/counts.py", "")
    asked = document.ask(stream=True)
    await client.until(lambda: asked.partials, "text")
    asked.cancel()
    assert await asked.error() == -32800
    older = document.ask(stream=True)
    await client.until(lambda: older.partials, "text")
    newer = document.ask()
    assert await older.error() == -32800
    await newer.items()
    stats = await client.stats()
    assert (stats["requests"], stats["cancelled"], stats["superseded"]) == (3, 1, 1)
    assert stats["completions"] <= 1
