"""One client's settings as they stand: asked for, checked, complained of, and handed to the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from lsp_server.engine_host import EngineHost
from lsp_server.generation import BackendError
from lsp_server.handshake import Client
from lsp_server.settings import Problem, Settings, parse
from lsp_server.wire import Wire

if TYPE_CHECKING:
    from engine.config import EngineConfig

_log = logging.getLogger(__name__)

_ANSWER_S = 5.0  # how long a client may take to tell its settings before the defaults are used
_WARNING = 2
_CHANGED = "workspace/didChangeConfiguration"


class Configuration:
    """What the user wants. `settings` is None until the client had its chance to tell, `engine` while it is off."""

    def __init__(self, client: Client, host: EngineHost, wire: Wire, changed: Callable[[], None]) -> None:
        self.settings: Settings | None = None
        self.engine: EngineConfig | None = None
        self._client = client
        self._host = host
        self._wire = wire
        self._changed = changed
        self._pushed: Any = None  # the latest that the client sent unasked
        self._complained: set[Problem] = set()
        self._turn = asyncio.Lock()  # changes are applied in the order in which they came
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """The client may be asked from now on."""
        if self._client.registers_configuration:
            self._spawn(self._register())
        self.refresh()

    def refresh(self, pushed: Any = None) -> None:
        """Something has changed; `pushed` is what the client sent of its settings, if anything."""
        self._pushed = self._pushed if pushed is None else pushed
        self._spawn(self._apply())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._host.leave(self, unload=False)

    async def _apply(self) -> None:
        async with self._turn:
            settings, problems = parse(self._client.options, self._pushed, await self._pulled())
            self.settings = settings
            if settings.enabled:
                problems += await self._configure_engine(settings)
            else:
                self.engine = None
                self._host.leave(self, unload=True)
            self._complain(problems)
            self._changed()

    async def _configure_engine(self, settings: Settings) -> list[Problem]:
        try:
            self.engine, problems = await self._host.configure(self, settings.engine)
        except BackendError as error:
            _log.error("%s", error)
            return []
        return problems

    async def _pulled(self) -> Any:
        """The settings from `workspace/configuration`, if the client can be asked."""
        if not self._client.pulls_configuration:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                answers = await self._wire.ask("workspace/configuration", {"items": [{"section": "specter"}]})
        except Exception as error:
            _log.warning("the client did not tell its settings (%s)", type(error).__name__)
            return None
        return answers[0] if isinstance(answers, list) and answers else None

    async def _register(self) -> None:
        registration = {"id": _CHANGED, "method": _CHANGED, "registerOptions": {"section": "specter"}}
        try:
            await self._wire.ask("client/registerCapability", {"registrations": [registration]})
        except Exception as error:
            _log.warning("the client does not report changed settings (%s)", type(error).__name__)

    def _complain(self, problems: Iterable[Problem]) -> None:
        """Once for each."""
        for problem in problems:
            if problem not in self._complained:
                self._complained.add(problem)
                self._wire.tell("window/showMessage", {"type": _WARNING, "message": str(problem)})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the settings could not be applied (%s)", type(error).__name__)
            _log.debug("the settings could not be applied", exc_info=error)
