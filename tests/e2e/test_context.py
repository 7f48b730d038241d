"""`specter/context` on the real server: exactly what a request sends, other files included, and nothing of secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.config import EngineConfig
from engine.generation import encode
from engine.loading import load
from engine.request import CompletionRequest, Snippet

from .client import EditorClient, OpenFile

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAIN = "from shop import load_basket\n\n\ndef pay(customer):\n    basket = load_basket(\n\n\ndef other():\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text("def load_basket(customer, day):\n    return 1\n")
    (tmp_path / ".env").write_text("load_basket = 'hunter2'\n")
    (tmp_path / "link.py").symlink_to(tmp_path / ".env")
    return tmp_path


async def connected(tcp_server: tuple[str, int], folder: Path, **options: Any) -> EditorClient:
    client = EditorClient(options=options)
    await client.start_tcp(*tcp_server)
    return await (await client.greet(folder=folder.as_uri())).ready()


@pytest_asyncio.fixture(loop_scope="session")
async def client(tcp_server, folder):
    client = await connected(tcp_server, folder, context={"maxSnippets": 4})
    yield client
    await client.end()


def opened(client: EditorClient, folder: Path) -> OpenFile:
    return client.open((folder / "main.py").as_uri(), MAIN).move_after("load_basket(")


async def context_with_snippets(document: OpenFile) -> dict[str, Any]:
    """What is sent once the server has looked at other files."""
    for _ in range(2000):
        context = await document.client.context(document.uri, document.position)
        if context["snippets"]:
            return context
        await asyncio.sleep(0.01)
    raise AssertionError("no snippets within 20 s")


async def test_the_prompt_is_the_engines(client, folder):
    """Seen to fail with a request that leaves the snippets out."""
    document = opened(client, folder)
    context = await context_with_snippets(document)
    text = "def load_basket(customer, day):\n"
    assert context["snippets"] == [{"uri": (folder / "shop.py").as_uri(), "text": text}]
    before, after = MAIN[: document.cursor], MAIN[document.cursor :]
    assert (context["prefix"], context["suffix"]) == (before, after)
    request = CompletionRequest(before, after, "main.py", folder.name, (Snippet("shop.py", text),))
    prompt = encode(load(EngineConfig(device="cpu")), request)
    assert context["prompt"] == prompt.text
    assert context["tokens"] == prompt.tokens
    await document.complete()
    assert (await client.stats())["last"]["prompt_tokens"] == prompt.tokens


async def test_a_keystroke_leaves_what_stands_before_it_in_place(client, folder):
    """The model's cache holds what two prompts have in common from their beginning. Seen to fail with pieces that are
    looked for again after each keystroke and sent in an order of chance."""
    client.open((folder / "open.py").as_uri(), "def charge(customer, basket):\n    notify(customer)\n")
    document = opened(client, folder)
    before = await context_with_snippets(document)
    assert len(before["snippets"]) == 2
    for typed in "customer":
        document.type(typed)
        await document.ask().items()
        after = await client.context(document.uri, document.position)
        assert after["snippets"] == before["snippets"]
        assert after["prompt"].startswith(before["prompt"].removesuffix("<|fim_middle|>"))
        before = after


async def test_the_embedded_pair_reads_no_other_files_unless_asked(tcp_server, folder):
    client = await connected(tcp_server, folder)
    document = opened(client, folder)
    for _ in range(5):
        assert (await client.context(document.uri, document.position))["snippets"] == []
        await asyncio.sleep(0.05)
    await client.end()


async def test_excluded_and_nothing_else(client, folder):
    for name in (".env", "link.py"):
        document = client.open((folder / name).as_uri(), "load_basket = 'hunter2'\n")
        assert await client.context(document.uri, document.position) == {"excluded": True}
        assert await document.ask().items() == []
    assert "hunter2" not in str(await context_with_snippets(opened(client, folder)))
