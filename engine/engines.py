"""The engine that a configuration asks for: models here, a server, or a server with models here for its bad times."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from engine.account import Account
from engine.config import ConfigError, EngineConfig
from engine.interface import Engine, EngineError
from engine.prompt import EncodedPrompt
from engine.remote import RemoteEngine
from engine.request import Chunk, CompletionRequest
from engine.sources import Report

log = logging.getLogger(__name__)


def make_engine(config: EngineConfig) -> Engine:
    """Not loaded yet."""
    if config.server_url is None:
        return local_engine(config)
    if config.fallback:
        return EngineWithFallback(config)
    return RemoteEngine(config)


def import_for(config: EngineConfig) -> None:
    """Imports what its engine needs, torch for models on this machine: seconds, for any thread."""
    if config.server_url is None:
        import engine.service  # noqa: F401


def local_engine(config: EngineConfig, account: Account | None = None) -> Engine:
    from engine.service import CompletionEngine

    return CompletionEngine(config, account)


class EngineWithFallback:
    """A server's completions, and those of a pair on this machine while the server is down.

    The pair is loaded when it is first needed, and kept: a server that was down once may be so again.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._account = Account()  # of both
        self._remote = RemoteEngine(config, self._account)
        self._local: Engine | None = None
        self._local_trouble = ""
        self._loading: asyncio.Task[None] | None = None
        self._watchers: list[Callable[[], None]] = []
        self._closed = False
        self._remote.watch(self._remote_changed)

    @property
    def _active(self) -> Engine:
        return self._remote if not self._remote.trouble or self._ready_local is None else self._ready_local

    @property
    def _ready_local(self) -> Engine | None:
        return self._local if self._local is not None and self._local.ready else None

    @property
    def ready(self) -> bool:
        return self._active.ready

    @property
    def trouble(self) -> str:
        if not self._remote.trouble or self._ready_local is not None:
            return ""
        then = f"the local pair cannot answer: {self._local_trouble}" if self._local_trouble else "the local pair loads"
        return f"{self._remote.trouble}; {then}"

    @property
    def description(self) -> dict[str, str]:
        active = self._active
        down = active is not self._remote
        return active.description | ({"notice": f"{self._remote.trouble}; the local pair answers"} if down else {})

    @property
    def reads_other_files(self) -> bool:
        return self._active.reads_other_files

    @property
    def uses_workspace(self) -> bool:
        return self._active.uses_workspace

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def prompt_room(self, max_tokens: int) -> int:
        return self._active.prompt_room(max_tokens)

    async def load(self, report: Report = lambda *_: None) -> None:
        await self._remote.load(report)
        if self._remote.trouble:
            await self._load_local(report)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The server's, unless it fails before any text and the pair is there. Raises EngineError."""
        if self._active is self._remote:
            said = False
            try:
                async with aclosing(self._remote.stream(request)) as chunks:
                    async for chunk in chunks:
                        said = said or bool(chunk.text)
                        yield chunk
                return
            except EngineError:
                if said or self._ready_local is None:
                    raise
        async with aclosing(self._active_local().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def preview(self, request: CompletionRequest) -> EncodedPrompt:
        return self._active.preview(request)

    def index(self, texts: Mapping[str, str]) -> bool:
        return self._active.index(texts)

    def usage(self) -> dict[str, Any]:
        """Of both: a completion may end after the other has begun to answer."""
        engines: list[Engine] = [self._remote] if self._local is None else [self._remote, self._local]
        found = [engine.usage() for engine in engines]
        return found[0] | {name: sum(usage[name] for usage in found) for name in ("liveGenerations", "waitingRequests")}

    def close(self) -> None:
        self._closed = True
        self._remote.close()
        if self._local is not None:
            self._local.close()

    def _active_local(self) -> Engine:
        assert self._ready_local is not None
        return self._ready_local

    def _remote_changed(self) -> None:
        if self._remote.trouble and self._local is None and self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load_local(lambda *_: None))
        self._tell()

    async def _load_local(self, report: Report) -> None:
        """Once; what is wrong with the pair is part of `trouble`."""
        if self._local is None and not self._closed:
            try:
                self._local = await asyncio.to_thread(local_engine, self._config, self._account)
                if self._closed:
                    self._local.close()
                self._local.watch(self._tell)
                await self._local.load(report)
                self._local_trouble = ""
            except (ConfigError, EngineError) as error:
                self._local_trouble = str(error)
            except Exception as error:  # whatever a library raises: the server may come back all the same
                log.debug("the local pair could not be loaded", exc_info=error)
                self._local_trouble = f"it could not be loaded ({type(error).__name__})"
            self._tell()

    def _tell(self) -> None:
        for changed in self._watchers:
            changed()
