"""The one engine of this process, shared by all clients: imported late, loaded in the background, reloaded when its
settings change. Knows no client and no protocol.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lsp_server.background import off_loop
from lsp_server.generation import BackendError
from lsp_server.settings import Problem, setting_key

if TYPE_CHECKING:
    from engine.config import ConfigError, EngineConfig
    from engine.interface import Engine, EngineError
    from engine.prompt import EncodedPrompt
    from engine.request import Chunk, CompletionRequest

_log = logging.getLogger(__name__)

# Fields of EngineConfig that a request carries itself: a change of these needs no other models.
_PER_REQUEST = ("mode", "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")
# Fields that name files of trained drafters: a bad one costs speed, never the completions.
_TRAINED = ("heads", "eagle")


class Parts(NamedTuple):
    """What this file needs of the engine package."""

    engine: Callable[[EngineConfig], Engine]
    imports: Callable[[EngineConfig], None]  # what that engine needs: seconds, on any thread
    fault: type[EngineError]
    config: type[EngineConfig]
    config_error: type[ConfigError]


def import_parts() -> Parts:
    """Import what checks a configuration. torch and transformers come with the first engine that needs them."""
    from engine.config import ConfigError, EngineConfig
    from engine.engines import import_for, make_engine
    from engine.interface import EngineError

    return Parts(make_engine, import_for, EngineError, EngineConfig, ConfigError)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether completions are possible, and what to tell the user about it. `fraction` is of the load, 0 to 1."""

    state: Literal["off", "loading", "ready", "error"]
    message: str = ""
    fraction: float = 0.0


class EngineHost:
    """Owns the engine. All methods belong to the event loop's thread but `release`."""

    def __init__(
        self, overrides: Mapping[str, object] | None = None, parts: Callable[[], Parts] = import_parts
    ) -> None:
        self.health = Health("off")
        self.watchers: set[Callable[[Health], None]] = set()
        self.offered_pair = False  # a better one, to download
        self._overrides = dict(overrides or {})
        self._import = parts
        self._parts: Parts | None = None
        self._engine: Engine | None = None
        self._config: EngineConfig | None = None  # of the engine, loaded or loading
        self._users: set[object] = set()
        self._turn = asyncio.Lock()  # loads and unloads happen one at a time
        self._loading: asyncio.Task[None] | None = None
        self._abandoning: asyncio.Task[None] | None = None

    async def configure(self, user: object, options: Mapping[str, object]) -> tuple[EngineConfig, list[Problem]]:
        """Have the engine that these options ask for, loading it in the background if it is another one than now.

        Returns the options as a checked configuration, and what of them could not be used. The engine is shared: while
        another user works with it, its models stay. Raises BackendError if there is no engine to be had.
        """
        if self._engine is None and self.health.state == "off":
            self._be(Health("loading", "starting"))
        parts = await self._imported()
        config, problems = _checked(parts, options, self._overrides)
        if self._config is not None and _models(config) == _models(self._config):
            self._users.add(user)
        elif self._users - {user}:
            problems.append(Problem("pair", "other clients use this server's models; start a server of your own"))
            self._users.add(user)
        else:
            self._users.add(user)
            self._load(config)
        return config, problems

    def restart(self) -> None:
        """Load the models anew."""
        if self._config is not None:
            self._load(self._config)

    def leave(self, user: object, unload: bool) -> None:
        """`user` wants no more completions; with `unload`, nor should the models stay for it."""
        self._users.discard(user)
        if unload and not self._users and self._config is not None:
            self._abandon_load()
            self._config = None
            self._loading = asyncio.create_task(self._unload())

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The engine's stream. Raises BackendError."""
        if self._engine is None or self._parts is None or self.health.state != "ready":
            raise BackendError("the engine is not ready")
        try:
            async with aclosing(self._engine.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except self._parts.fault as fault:
            raise BackendError(str(fault)) from fault

    @property
    def ready(self) -> bool:
        return self._engine is not None and self._engine.ready

    def preview(self, request: CompletionRequest) -> EncodedPrompt:
        """The prompt of a request. Only when `ready`."""
        assert self._engine is not None
        return self._engine.preview(request)

    @property
    def reads_other_files(self) -> bool:
        """Whether the model was trained to see other files beside the document."""
        return self._engine is not None and self._engine.ready and self._engine.reads_other_files

    def prompt_room(self, max_tokens: int) -> int:
        """Tokens of the longest prompt beside a completion of that many; 0 while there is no engine."""
        return self._engine.prompt_room(max_tokens) if self._engine is not None and self._engine.ready else 0

    @property
    def uses_workspace(self) -> bool:
        """Whether it looks for guesses in the user's other files."""
        return self._engine is not None and self._engine.ready and self._engine.uses_workspace

    def index(self, texts: Mapping[str, str]) -> bool:
        """The engine's `index`, for any thread. Without an engine there is nothing to put them into."""
        engine = self._engine
        return engine.index(texts) if engine is not None else True

    def description(self) -> Mapping[str, str]:
        return self._engine.description if self._engine is not None and self._engine.ready else {}

    @property
    def chooses_pair(self) -> bool:
        """Whether the user left the choice of the models to us."""
        return self._config is not None and (
            self._config.pair == "auto" and self._config.target is None and self._config.server_url is None
        )

    def usage(self) -> Mapping[str, Any]:
        if self._engine is not None:
            return self._engine.usage()
        return {
            "liveGenerations": 0,
            "waitingRequests": 0,
            "tokensAfterCancel": 0,
            "cancelToIdleMs": {"p50": 0.0, "p99": 0.0, "max": 0.0},
        }

    def release(self) -> None:
        """Free the models. Blocks until the step in progress is over."""
        if self._engine is not None:
            self._engine.close()

    async def _imported(self) -> Parts:
        if self._parts is not None:
            return self._parts  # at once: a load may have the turn
        async with self._turn:
            if self._parts is None:
                try:
                    self._parts = await off_loop(self._import)
                except Exception as error:
                    message = f"the engine cannot be imported ({type(error).__name__}: {error})"
                    self._be(Health("error", message))
                    raise BackendError(message) from error
            return self._parts

    def _load(self, config: EngineConfig) -> None:
        self._abandon_load()
        self._config = config
        self._be(Health("loading", "loading the models"))
        self._loading = asyncio.create_task(self._replace(config))

    async def _replace(self, config: EngineConfig) -> None:
        async with self._turn:
            if config is not self._config:
                return  # another change came while this one waited
            await self._close_engine()
            assert self._parts is not None, "configure() imports first"
            parts = self._parts
            try:
                await off_loop(lambda: parts.imports(config))
                if not gc.get_freeze_count():
                    # What was imported stays, and need not be looked through for cycles again and again: with 64
                    # clients on a remote engine that took 13 % of the time, and 9 % without it.
                    gc.freeze()
                if config is not self._config:
                    return  # no longer wanted
                left_out = await self._load_engine(config)
                assert self._engine is not None
                self._be(_health(self._engine, left_out))
            except parts.config_error as error:
                self._be(Health("error", str(error)))
            except Exception as error:
                if config is not self._config:
                    return  # abandoned; what came instead waits for its turn
                _log.error("the models could not be loaded (%s)", type(error).__name__)
                _log.debug("the models could not be loaded", exc_info=error)
                self._be(Health("error", f"the models could not be loaded ({type(error).__name__})"))

    async def _load_engine(self, config: EngineConfig) -> str:
        """Returns what was wrong with files of trained drafters; the engine completes without those."""
        assert self._parts is not None
        complaints = list[str]()
        while True:
            try:
                self._engine = engine = self._parts.engine(config)
                engine.watch(partial(self._changed, engine))
                await engine.load(self._report)
                notice = engine.description.get("notice")
                return "; ".join([*complaints, *([notice] if notice else [])])
            except self._parts.config_error as error:
                if getattr(config, error.key, None) is None or error.key not in _TRAINED:
                    raise
                _log.warning("%s", error)
                complaints.append(str(error))
                await self._close_engine()
                config = config.replace(**{error.key: None}, drafter="auto")

    def _abandon_load(self) -> None:
        """The models that are being loaded, and may have to be downloaded first, are not wanted any more."""
        engine = self._engine
        if self.health.state == "loading" and engine is not None:
            self._abandoning = asyncio.create_task(off_loop(engine.close))

    async def _unload(self) -> None:
        async with self._turn:
            if self._config is None:
                await self._close_engine()
                self._be(Health("off"))

    async def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await off_loop(engine.close)

    def _changed(self, engine: Engine) -> None:
        """It has got into trouble, or out of it, or had to go on with other models."""
        if engine is self._engine and self.health.state != "loading":
            self._be(_health(engine, engine.description.get("notice", "")))

    def _report(self, fraction: float, message: str) -> None:
        if self.health.state == "loading":
            self._be(Health("loading", message, fraction))

    def _be(self, health: Health) -> None:
        self.health = health
        for watcher in list(self.watchers):
            watcher(health)


def _health(engine: Engine, notice: str) -> Health:
    return Health("error", engine.trouble) if engine.trouble else Health("ready", notice)


def _checked(
    parts: Parts, options: Mapping[str, object], overrides: Mapping[str, object]
) -> tuple[EngineConfig, list[Problem]]:
    """The configuration, without the options that cannot work."""
    values: dict[str, Any] = {**options, **overrides}
    problems: list[Problem] = []
    while True:
        try:
            return parts.config.of(values), problems
        except parts.config_error as error:
            if error.key not in values:
                raise
            del values[error.key]
            problems.append(Problem(setting_key(error.key), str(error).partition(": ")[2]))


def _models(config: EngineConfig) -> EngineConfig:
    """What of a configuration decides over the models."""
    defaults = type(config)()
    return config.replace(**{name: getattr(defaults, name) for name in _PER_REQUEST})
