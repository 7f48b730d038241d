"""Commands on a server's completions: the engine over HTTP as plain, blocking calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lsp_server.commands import UserError
from lsp_server.commands.terminal import working

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.interface import Engine
    from engine.request import Chunk, CompletionRequest

_T = TypeVar("_T")


class Serving:
    """An engine and the event loop that it lives on. Raises UserError if no completions are to be had."""

    def __init__(self, config: EngineConfig) -> None:
        from engine.engines import make_engine

        self._loop = asyncio.Runner()
        with working("starting") as say:
            self.engine: Engine = make_engine(config)
            try:
                self.run(self.engine.load(lambda _, what: say(what)))
                if self.engine.trouble:
                    raise UserError(f"--server-url: {self.engine.trouble}")
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Serving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run(work)

    def stream(self, request: CompletionRequest) -> Generator[Chunk, None, None]:
        """Raises UserError if it fails: what is wrong with a server is for its owner to repair."""
        from engine.interface import EngineError

        chunks = self.engine.stream(request)
        try:
            while True:
                try:
                    yield self.run(_next(chunks))
                except StopAsyncIteration:
                    return
                except EngineError as error:
                    raise UserError(f"--server-url: {error}") from None
        finally:
            self.run(_close(chunks))

    def close(self) -> None:
        self.engine.close()
        self._loop.close()


async def _next(chunks: Any) -> Chunk:
    chunk: Chunk = await anext(chunks)
    return chunk


async def _close(chunks: Any) -> None:
    await chunks.aclose()
