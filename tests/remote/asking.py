"""Questions to a real server, as the tests of all servers ask them."""

from __future__ import annotations

from contextlib import aclosing

from engine.config import EngineConfig
from engine.interface import Engine
from engine.remote import RemoteEngine
from engine.remote.metrics import Metrics, read_metrics
from engine.request import CompletionRequest

CODE = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        "
_TABLE = "TABLE = {\n" + "".join(f"    'name_{number}': {number},\n" for number in range(50))
LONG = CompletionRequest(_TABLE, "", "table.py", max_tokens=400)  # goes on to the last of them
REQUESTS = [
    CompletionRequest(CODE, "\n\n    def pop(self):\n        return self.items.pop()\n", "stack.py", max_tokens=24),
    CompletionRequest("import json\n\n\ndef read(path):\n    with open(", "\n", "read.py", max_tokens=24),
    CompletionRequest("MARK = '<|fim_middle|>'\n\n\ndef add(a, b):\n    return ", "\n", "add.py", max_tokens=24),
]


async def remote(url: str, tokenizer: str | None = "embedded") -> RemoteEngine:
    engine = RemoteEngine(EngineConfig(server_url=url, server_tokenizer=tokenizer))
    await engine.load()
    assert engine.trouble == ""
    return engine


async def text_of(engine: Engine, request: CompletionRequest) -> str:
    async with aclosing(engine.stream(request)) as chunks:
        return "".join([chunk.text async for chunk in chunks])


async def metrics(engine: RemoteEngine) -> Metrics:
    found = await read_metrics(engine.client)
    assert found is not None
    return found
