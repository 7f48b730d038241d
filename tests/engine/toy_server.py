"""A server of completions on 127.0.0.1, by hand on a socket, so that it can do everything wrong that servers do."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
QWEN += ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKER = 0x110000


def tokens(text: str, markers: tuple[str, ...]) -> list[int]:
    """Each character a token, each marker one."""
    ids, at = list[int](), 0
    while at < len(text):
        name = next((name for name in markers if text.startswith(name, at)), None)
        ids.append(ord(text[at]) if name is None else _MARKER + markers.index(name))
        at += 1 if name is None else len(name)
    return ids


@dataclass
class Request:
    """What came: method, path, headers, and the JSON of the body."""

    method: str
    path: str
    headers: dict[str, str]
    payload: dict[str, Any]
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # the client has closed the connection


Handler = Callable[[Request, "Reply"], Awaitable[None]]


class Reply:
    """Writes to the client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: bytes, kind: str = "application/json", status: str = "200 OK", more: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        await self.raw(head.encode() + body)

    async def json(self, value: Any, status: str = "200 OK") -> None:
        await self.answer(json.dumps(value).encode(), status=status)

    async def start_stream(self) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await self.raw(head.encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, value: Any) -> None:
        await self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def end_stream(self) -> None:
        await self.chunk(b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self._writer.transport.abort()


class ToyServer:
    """Runs in a thread of its own, from `start` to `close`. What it does is in its fields, changed at any time."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.models: list[dict[str, Any]] = [{"id": "toy", "owned_by": "vllm", "max_model_len": 4096}]
        self.markers: tuple[str, ...] = QWEN
        self.key: str | None = None
        self.tokenises = True
        self.takes_suffix = False
        self.strict = False  # refuses fields that OpenAI's completions have not
        self.shows_ids = True
        self.pieces: list[str] = [" a", " +", " b"]
        self.pause_s = 0.0  # before each piece
        self.metrics = ""
        self.props: dict[str, Any] | None = None  # llama.cpp's
        self.closes_behind_streams = False  # without a word: the next request on that connection is not read
        self.wrong: Handler | None = None  # in place of what follows, for completions that are not a probe's
        self.requests: list[Request] = []
        self.connections = 0  # that were ever made
        self.running = 0
        self.left = 0  # streams whose client went away
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> ToyServer:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result(10)
        return self

    def stop(self) -> None:
        """As if it had died: connections are cut, its port is closed."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def completions(self) -> list[dict[str, Any]]:
        return [request.payload for request in self.requests if request.path == "/v1/completions"]

    async def _start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            streamed, begun = False, b""
            while (request := await _read(reader, begun)) is not None:
                if streamed and self.closes_behind_streams:
                    break
                streamed = bool(request.payload.get("stream"))
                self.requests.append(request)
                # Nobody sends a second request before the first is answered, so whatever can be read is the end.
                peek = asyncio.ensure_future(reader.read(1))
                peek.add_done_callback(lambda _, gone=request.gone: gone.set())  # type: ignore[misc]
                try:
                    await self._answer(request, Reply(writer))
                finally:
                    peek.cancel()
                    [begun] = await asyncio.gather(peek, return_exceptions=True)
                begun = begun if isinstance(begun, bytes) else b""
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, request: Request, reply: Reply) -> None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            said = request.headers.get("authorization", "")
            await reply.json({"error": {"message": f"Incorrect API key provided: {said}"}}, "401 Unauthorized")
        elif request.path == "/v1/models":
            await reply.json({"object": "list", "data": self.models})
        elif request.path == "/tokenize" and self.tokenises:
            await reply.json({"tokens": tokens(request.payload["prompt"], self.markers)})
        elif request.path == "/metrics" and self.metrics:
            await reply.answer(self.metrics.encode(), "text/plain")
        elif request.path == "/props" and self.props is not None:
            await reply.json(self.props)
        elif request.path == "/v1/completions":
            await self._complete(request, reply)
        else:
            await reply.json({"error": {"message": "Not Found"}}, "404 Not Found")

    async def _complete(self, request: Request, reply: Reply) -> None:
        payload = request.payload
        extra = {"stop_token_ids", "return_token_ids", "skip_special_tokens"} & payload.keys()
        if payload.get("model") not in [model["id"] for model in self.models]:
            await reply.json({"error": {"message": "no such model"}}, "404 Not Found")
        elif (self.strict and extra) or ("suffix" in payload and not self.takes_suffix):
            await reply.json({"error": {"message": f"unknown: {payload}"}}, "400 Bad Request")
        elif self.wrong is not None and payload["max_tokens"] > 2:
            await self.wrong(request, reply)
        elif not payload.get("stream"):
            await reply.json({"choices": [{"text": "x"}], "usage": self._usage(payload, 1)})
        else:
            await self._stream(request, reply)

    def _usage(self, payload: dict[str, Any], done: int) -> dict[str, int]:
        prompt = payload["prompt"]
        count = len(prompt if isinstance(prompt, list) else tokens(prompt, self.markers))
        return {"prompt_tokens": count + len(payload.get("suffix") or ""), "completion_tokens": done}

    async def _stream(self, request: Request, reply: Reply) -> None:
        payload = request.payload
        await reply.start_stream()
        self.running += 1
        try:
            pieces = self.pieces[: payload["max_tokens"]]
            for index, piece in enumerate(pieces):
                await asyncio.sleep(self.pause_s)
                if request.gone.is_set():
                    self.left += 1
                    return
                last = index + 1 == len(pieces)
                reason = ("length" if last and len(pieces) == payload["max_tokens"] else "stop") if last else None
                choice: dict[str, Any] = {"index": 0, "text": piece, "finish_reason": reason}
                if payload.get("return_token_ids") and self.shows_ids:
                    choice["token_ids"] = [index]
                event: dict[str, Any] = {"choices": [choice]}
                if "stream_options" in payload:
                    event["usage"] = self._usage(payload, index + 1)
                await reply.event(event)
            await reply.end_stream()
        finally:
            self.running -= 1


async def _read(reader: asyncio.StreamReader, begun: bytes) -> Request | None:
    """The next request, of which the first bytes may have been read."""
    head = (begun + await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(body) if body else {})
