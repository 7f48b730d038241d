"""An engine without models and a client without an editor, for tests of everything between the two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from engine.config import ConfigError, EngineConfig
from engine.record import Completion
from engine.request import Chunk, CompletionRequest
from lsp_server.connection import Connection
from lsp_server.engine_host import EngineHost, Parts
from lsp_server.serve import _opener
from lsp_server.transport import FrameDecoder, frame


class FakeEngineError(Exception):
    pass


class FakeEngine:
    """Says `script(request)` piece by piece; knows how many streams are open and how many ever were at once."""

    made: ClassVar[list[FakeEngine]] = []
    script: Callable[[CompletionRequest], list[str | Exception]] = staticmethod(
        lambda request: ["return", " a", " + b"]
    )
    pause: Callable[[], Any] = staticmethod(lambda: asyncio.sleep(0))
    load_error: Exception | None = None
    load_gate: asyncio.Event | None = None

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.requests: list[CompletionRequest] = []
        self.indexed: dict[str, str] = {}
        self.live = self.most_live = 0
        self.ready = self.closed = False
        self.description = {"pair": config.pair, "device": "cpu", "dtype": "float32", "drafter": "model"}
        FakeEngine.made.append(self)

    async def load(self, report: Callable[[float, str], None]) -> None:
        report(0.5, "half")
        if self.load_gate is not None:
            await self.load_gate.wait()
        if self.load_error is not None:
            raise self.load_error
        self.ready = True

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        text = ""
        try:
            for piece in self.script(request):
                await self.pause()
                if isinstance(piece, Exception):
                    raise piece
                text += piece
                yield Chunk(piece)
                if request.until is not None and request.until(text):
                    break
            yield Chunk("", completion=completion(text))
        finally:
            try:
                await asyncio.sleep(0)  # a real stream takes a step to end
            finally:
                self.live -= 1

    def preview(self, request: CompletionRequest) -> Any:
        return SimpleNamespace(
            text=f"<P>{request.prefix}<S>{request.suffix}<M>",
            prefix=request.prefix,
            suffix=request.suffix,
            snippets=request.snippets,
            tokens=7,
        )

    reads_other_files = True
    uses_workspace = False
    trouble = ""

    def watch(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def index(self, texts: Mapping[str, str]) -> bool:
        self.indexed = {uri: text for uri, text in (self.indexed | dict(texts)).items() if text}
        return True

    def prompt_room(self, max_tokens: int) -> int:
        return 8192 - max_tokens

    def usage(self) -> dict[str, Any]:
        return {
            "liveGenerations": self.live,
            "waitingRequests": 0,
            "tokensAfterCancel": 0,
            "cancelToIdleMs": {"p50": 0.0, "p99": 0.0, "max": 0.0},
        }

    def close(self) -> None:
        self.closed = True


def completion(text: str) -> Completion:
    return Completion(
        text=text,
        token_ids=tuple(range(len(text.split()))),
        drafted=4,
        accepted=3,
        rejected=1,
        discarded=0,
        accepted_lengths=(3,),
        rejected_at=(3,),
        target_forwards=2,
        draft_ms=1.0,
        verify_ms=2.0,
        prefill_ms=1.0,
        ttft_ms=2.0,
        total_ms=4.0,
        prompt_tokens=9,
        reused_tokens=0,
        peak_memory_mb=1.0,
        stop="eos",
        drafter="model",
        mode="greedy",
        seed=None,
        pair="fake",
    )


def fake_parts() -> Parts:
    return Parts(FakeEngine, lambda _: None, FakeEngineError, EngineConfig, ConfigError)  # type: ignore[arg-type]


def fake_host(overrides: dict[str, object] | None = None) -> EngineHost:
    return EngineHost(overrides, fake_parts)


class Output:
    """Takes frames; `idle` is the test's to say."""

    def __init__(self, arrived: Callable[[dict[str, Any]], None]) -> None:
        self.idle = True
        self.closed = False
        self._arrived = arrived

    def write(self, body: bytes) -> None:
        self._arrived(json.loads(body))

    async def close(self) -> None:
        self.closed = True


class Client:
    """Sends any bytes to a connection in this process, keeps what comes back, answers the server's requests."""

    def __init__(self, host: EngineHost | None = None) -> None:
        self.host = host or fake_host()
        self.connection = Connection(_opener(self.host, lambda _: None))
        self.output = Output(self._arrived)
        self.connection.attach(self.output)
        self.messages: list[dict[str, Any]] = []
        self._replies: dict[Any, list[dict[str, Any]]] = {}
        self.settings: Any = None  # for workspace/configuration
        self.root = "file:///w"
        self._change = asyncio.Event()

    def _arrived(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if "method" not in message:
            self._replies.setdefault(message["id"], []).append(message)
        self._change.set()
        if "id" in message and "method" in message:
            answer = [self.settings] if message["method"] == "workspace/configuration" else None
            asyncio.get_running_loop().call_soon(lambda: self.send(id=message["id"], result=answer))

    def raw(self, data: bytes) -> None:
        self.connection.receive(data)

    def body(self, body: bytes | str) -> None:
        self.raw(frame(body if isinstance(body, bytes) else body.encode()))

    def send(self, **message: Any) -> None:
        self.body(json.dumps({"jsonrpc": "2.0", **message}))

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    async def ask(self, id_: Any, method: str, params: Any = None) -> dict[str, Any]:
        self.send(id=id_, method=method, params=params)
        return await self.reply(id_)

    def replies(self, id_: Any) -> list[dict[str, Any]]:
        return self._replies.get(id_, [])

    async def reply(self, id_: Any) -> dict[str, Any]:
        await self.until(lambda: self.replies(id_))
        return self.replies(id_)[0]

    def of(self, method: str) -> list[Any]:
        """The params of what the server sent under this method."""
        return [m["params"] for m in self.messages if m.get("method") == method]

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self._change.clear()
                await self._change.wait()

    async def settle(self) -> None:
        """Let everything that can run now run."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def greet(self, options: Any = None, **capabilities: Any) -> Client:
        params = {"processId": None, "rootUri": self.root, "capabilities": capabilities}
        await self.ask("init", "initialize", params | {"initializationOptions": options})
        self.notify("initialized")
        return self

    async def ready(self, options: Any = None, **capabilities: Any) -> Client:
        await self.greet(options, **capabilities)
        await self.until(lambda: any(status["state"] == "ready" for status in self.of("specter/status")))
        return self

    def open(self, uri: str, text: str, language: str = "python") -> None:
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=document)

    def change(self, uri: str, line: int, character: int, text: str, version: int = 2) -> None:
        place = {"line": line, "character": character}
        self.notify(
            "textDocument/didChange",
            textDocument={"uri": uri, "version": version},
            contentChanges=[{"range": {"start": place, "end": place}, "text": text}],
        )

    def request(self, id_: Any, uri: str, line: int, character: int, token: Any = None, **context: Any) -> None:
        params: dict[str, Any] = {
            "textDocument": {"uri": uri},
            "position": {"line": line, "character": character},
            "context": {"triggerKind": 2, **context},
        }
        self.send(
            id=id_,
            method="textDocument/inlineCompletion",
            params=params | ({"partialResultToken": token} if token else {}),
        )


class PipeClient:
    """The same over the pipes of a subprocess."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._decoder = FrameDecoder()
        self._bodies: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    async def receive(self) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        while not self._bodies:
            data = await self.process.stdout.read(1 << 16)
            if not data:
                return None
            self._bodies += [json.loads(body) for body in self._decoder.feed(data) if isinstance(body, bytes)]
        return self._bodies.pop(0)

    async def reply(self, id_: Any) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while (message := await self.receive()) is not None:
                if message.get("id") == id_ and "method" not in message:
                    return message
        raise AssertionError("the server ended without a reply")
