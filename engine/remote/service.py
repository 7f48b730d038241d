"""The engine whose models run on a server: streams, cancels by closing the connection, and comes back by itself."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from engine.account import Account
from engine.config import ConfigError, EngineConfig
from engine.interface import EngineError
from engine.prompt import EncodedPrompt
from engine.remote.client import Client
from engine.remote.errors import RemoteError
from engine.remote.probe import Server, probe
from engine.remote.tally import Tally
from engine.request import Chunk, CompletionRequest
from engine.sources import Report

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # between two looks at a server that is down
_LONGEST_S = 300.0  # a completion without a deadline
_CLOSED = "the engine was closed"


class RemoteEngine:
    """Completions of one server, as many at once as are asked for. It never loads a model.

    A server that is down, refuses the key or has another model is `trouble`, not an exception: it is looked at again,
    ever more rarely, until it answers. All methods belong to one event loop but `close`.
    """

    uses_workspace = False

    def __init__(self, config: EngineConfig, account: Account | None = None) -> None:
        """account: where to count, if not by itself."""
        self.trouble = ""
        self._config = config
        self._client: Client | None = None
        self._server: Server | None = None
        self._watchers: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._live = 0
        self._account = Account() if account is None else account
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def ready(self) -> bool:
        return self._server is not None

    @property
    def server(self) -> Server | None:
        """What was found, once it answered."""
        return self._server

    @property
    def client(self) -> Client:
        """For further questions to the same server."""
        if self._client is None:
            self._client = Client(self._config)
        return self._client

    @property
    def description(self) -> dict[str, str]:
        if self._server is None:
            return {}
        return {"pair": self._server.model, "device": self.client.host, "dtype": "", "drafter": "server"}

    @property
    def reads_other_files(self) -> bool:
        return self._server is not None and self._server.layout.other_files

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def prompt_room(self, max_tokens: int) -> int:
        return 0 if self._server is None else _prompt_room(self._server, max_tokens)

    async def load(self, report: Report = lambda *_: None) -> None:
        """Looks at the server; what is wrong with it becomes `trouble`. Raises ConfigError and EngineError."""
        if self._closed:
            raise EngineError(_CLOSED)
        self._loop = asyncio.get_running_loop()
        try:
            self._server = await probe(self.client, self._config, report)
            self.trouble = ""
        except RemoteError as error:
            self._down(str(error))
        if self._closed:
            raise EngineError(_CLOSED)

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The completion's text as it becomes certain; the last chunk carries its measurements. Raises EngineError.

        A connection that is lost before any text is tried once more.
        """
        return self._account.counting(self._chunks(request))

    async def _chunks(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        server = self._server
        if server is None or self._closed:
            raise EngineError(self.trouble or "the engine is not loaded")
        began = time.perf_counter()
        prompt = self.preview(request)
        seed = None if request.sampling.greedy else request.sampling.fresh_seed()
        tally = Tally(request, server, prompt, began)
        self._live += 1
        try:
            for attempt in (1, 2):
                try:
                    async with aclosing(self._pieces(request, server, prompt, seed, tally)) as pieces:
                        async for chunk in pieces:
                            yield chunk
                    break
                except RemoteError as error:
                    if error.lost and attempt == 1 and not tally.text:
                        tally = Tally(request, server, prompt, began)
                        continue
                    if error.down:
                        self._down(str(error))
                    raise
            yield Chunk(tally.rest(), completion=tally.completion(seed))
        finally:
            self._live -= 1

    async def _pieces(
        self, request: CompletionRequest, server: Server, prompt: EncodedPrompt, seed: int | None, tally: Tally
    ) -> AsyncGenerator[Chunk, None]:
        """One attempt: the text, until a reason to stop is met. Leaving it closes the connection."""
        limit_s = _LONGEST_S if request.deadline_s is None else request.deadline_s
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + limit_s - (time.perf_counter() - tally.began)
        try:
            async with asyncio.timeout_at(ends_at):
                fields = await server.layout.fields(prompt)
        except TimeoutError:
            tally.stop = "deadline"
            return
        payload = _payload(server, request, seed, fields)
        async with aclosing(self.client.completion(payload)) as events:
            while tally.stop is None:
                before = tally.tokens
                try:
                    async with asyncio.timeout_at(ends_at):
                        event = await anext(events)
                except TimeoutError:
                    tally.stop = "deadline"
                    if request.deadline_s is None:
                        raise RemoteError(
                            f"the server's stream lasted for over {_LONGEST_S:.0f} s", down=False
                        ) from None
                    return
                except StopAsyncIteration:
                    return
                piece = tally.take(event)
                yield Chunk(piece, tally.tokens - before)
            if tally.finished:
                await self._drain(events, tally, ends_at)

    async def _drain(self, events: AsyncGenerator[dict[str, Any], None], tally: Tally, ends_at: float) -> None:
        """The server has ended by itself: its last words, with what it counted, leave the connection to the next."""
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout_at(min(ends_at, asyncio.get_running_loop().time() + 1.0)):
                async for event in events:
                    tally.count(event)

    async def payload(self, request: CompletionRequest) -> dict[str, Any]:
        """What a stream of this request sends, for a server that was found. Raises RemoteError."""
        assert self._server is not None
        return _payload(self._server, request, None, await self._server.layout.fields(self.preview(request)))

    def preview(self, request: CompletionRequest) -> EncodedPrompt:
        if self._server is None:
            raise EngineError(self.trouble or "the engine is not loaded")
        return self._server.layout.build(request, _prompt_room(self._server, request.max_tokens))

    def index(self, texts: Mapping[str, str]) -> bool:
        """The server has no workspace index."""
        return True

    def usage(self) -> dict[str, Any]:
        return {"liveGenerations": self._live, "waitingRequests": 0} | self._account.to_json()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._server = None
        loop, client = self._loop, self._client
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, loop, client)

    def _end(self, loop: asyncio.AbstractEventLoop, client: Client | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if client is not None:
            self._looking = loop.create_task(client.close())

    def _down(self, trouble: str) -> None:
        """From now on the server is looked at until it answers."""
        if self._closed:
            return
        changed, self.trouble = trouble != self.trouble, trouble
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        if changed:
            log.warning("%s", trouble)
            self._tell()

    async def _look(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed:
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))  # not all clients at once
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                self._server = await probe(self.client, self._config)
            except (RemoteError, ConfigError) as error:
                if str(error) != self.trouble:
                    self.trouble = str(error)
                    self._tell()
                continue
            self.trouble = ""
            self._tell()
            return

    def _tell(self) -> None:
        for changed in self._watchers:
            changed()


def _payload(server: Server, request: CompletionRequest, seed: int | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    payload = {**server.fields, **_sampling(request, seed), **fields}
    return payload | {"model": server.model, "max_tokens": request.max_tokens, "stream": True}


def _prompt_room(server: Server, max_tokens: int) -> int:
    """A completion gets half of the context at the most."""
    return max(server.context - max_tokens, server.context // 2)


def _sampling(request: CompletionRequest, seed: int | None) -> dict[str, Any]:
    """The law in the server's words. What filters nothing is not said: some servers know not all of them."""
    law = request.sampling
    if law.greedy:
        return {"temperature": 0.0}
    fields: dict[str, Any] = {"temperature": law.temperature, "seed": seed}
    filters = (("top_p", law.top_p, 1.0), ("top_k", law.top_k, 0), ("min_p", law.min_p, 0.0))
    return fields | {name: value for name, value, off in filters if value != off}
