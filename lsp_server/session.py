"""What the server does for one client, in plain values: its documents, settings and suggestions.

Knows the meaning of the protocol's messages but not their form: server.py converts.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsp_server import context, exclusions
from lsp_server.completer import Completer, BackendError, Job, Listener, Outcome
from lsp_server.documents import Change, Document, Documents, Position
from lsp_server.engine_host import EngineHost, Health
from lsp_server.feedback import Feedback
from lsp_server.handshake import Client
from lsp_server.progress import LoadProgress
from lsp_server.settings import Problem, Settings, parse

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.record import Completion
    from engine.request import CompletionRequest

_log = logging.getLogger(__name__)

_CONFIGURATION_S = 5.0  # how long a client may take to tell its settings before the defaults are used


@dataclass(frozen=True, slots=True)
class Selected:
    """The popup's item that is focused: accepting it would put `text` in place of start..end (wire positions)."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text to offer in place of start..end (wire positions); its id comes back when it is accepted."""

    id: str
    text: str
    start: Position
    end: Position


class RefusedError(Exception):
    """The request cannot be served now; the message says why."""


class Wire:
    """How a session talks to its client: notifications, requests, and what it may show."""

    def __init__(self, tell: Callable[[str, Any], None], ask: Callable[[str, Any], Awaitable[Any]]) -> None:
        self.tell = tell
        self.ask = ask


class Session:
    """One client. `grew` callbacks get the suggestion so far; whether it is sent is the caller's decision."""

    def __init__(self, client: Client, host: EngineHost, wire: Wire) -> None:
        self.documents = Documents(client.encoding)
        self.feedback = Feedback()
        self._client = client
        self._host = host
        self._wire = wire
        self._folders = list(client.folders)
        self._settings: Settings | None = None  # None until the client had its chance to tell them
        self._config: EngineConfig | None = None
        self._completer = Completer()
        self._progress = LoadProgress(wire.ask, wire.tell)
        self._requests = 0
        self._last: Completion | None = None
        self._fault = ""  # the engine's latest failure, "" after a success
        self._told: dict[str, Any] = {}  # the latest specter/status
        self._complained: set[Problem] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The client is ready (`initialized`)."""
        self._host.watchers.add(self._host_changed)
        if self._client.registers_configuration:
            self._spawn(self._register())
        self.reconfigure(None)

    def reconfigure(self, pushed: Any) -> None:
        """The settings may have changed; `pushed` is what the client sent of them, if anything."""
        self._spawn(self._configure(pushed))

    def close(self) -> None:
        """The client has gone."""
        self._host.watchers.discard(self._host_changed)
        self._host.leave(self, unload=False)
        for task in self._tasks:
            task.cancel()

    def folders_changed(self, added: Iterable[str], removed: Iterable[str]) -> None:
        gone = set(removed)
        self._folders = [folder for folder in self._folders if folder not in gone] + list(added)

    # --- documents ----------------------------------------------------------------------------------------------

    def changed(self, uri: str, version: int, changes: Iterable[Change]) -> None:
        self._completer.edited(uri, self.documents.change(uri, version, changes))

    def closed(self, uri: str) -> None:
        self.documents.close(uri)
        self._completer.stop(uri, "closed")

    # --- completions --------------------------------------------------------------------------------------------

    def complete(
        self,
        uri: str,
        position: Position,
        selected: Selected | None,
        automatic: bool,
        convert: Callable[[Suggestion | None], Any],
        grew: Callable[[Suggestion], None],
    ) -> Any:
        """A suggestion at the position, converted: at once if there is none to be had, otherwise in a task.

        The task raises SupersededError if a newer request for the document comes first.
        """
        self._requests += 1
        document = self.documents.get(uri)
        config = self._ready_for(document)
        if document is None or config is None:
            self._completer.stop(uri, "superseded")
            return convert(None)
        place = _place(document, position, selected)
        if place is None:
            self._completer.stop(uri, "superseded")
            return convert(None)
        return self._start(document, place, config, automatic, convert, grew)

    def _ready_for(self, document: Document | None) -> EngineConfig | None:
        """The configuration for a completion in this document; None if there should be no completion."""
        settings = self._settings
        if settings is None or self._config is None or self._host.health.state != "ready":
            self._tell_status(again=True)
            return None
        if document is None or not settings.allows(document.language_id) or self._excluded(document.uri):
            return None
        return self._config

    def _excluded(self, uri: str) -> bool:
        return exclusions.excluded(uri, self._folders, self._settings.exclude if self._settings else ())

    def _start(
        self,
        document: Document,
        place: _Place,
        config: EngineConfig,
        automatic: bool,
        convert: Callable[[Suggestion | None], Any],
        grew: Callable[[Suggestion], None],
    ) -> asyncio.Task[Any]:
        assert self._settings is not None
        id_, eol, language = uuid.uuid4().hex, document.eol, document.language_id

        def suggestion(text: str) -> Suggestion:
            return Suggestion(id_, text.replace("\n", eol), place.start, place.end)

        def ended(outcome: Outcome) -> Any:
            self._record(outcome)
            if not outcome.text:
                return convert(None)
            self.feedback.offered(id_, language, outcome.completion.drafter if outcome.completion else "")
            return convert(suggestion(outcome.text))

        job = Job(
            uri=document.uri,
            cursor=place.cursor,
            request=self._request(document, place, config),
            selected=place.selected,
            delay_s=self._settings.debounce_ms / 1000 if automatic else 0.0,
        )
        task = self._completer.start(job, self._host.stream, Listener(lambda text: grew(suggestion(text)), ended))
        task.add_done_callback(lambda _: self._tell_status())
        self._tell_status()
        return task

    def _request(self, document: Document, place: _Place, config: EngineConfig) -> CompletionRequest:
        assert self._settings is not None
        snapshot = document.snapshot(place.head, place.tail)
        return context.build(snapshot, self._folders, self._settings, config, place.selected)

    def _record(self, outcome: Outcome) -> None:
        if outcome.fault is not None:
            self._fault = outcome.fault
        elif outcome.completion is not None:
            self._fault, self._last = "", outcome.completion
        if outcome.text:
            self._completer.counts.completions += 1

    # --- questions ----------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """`specter/stats`."""
        counts = self._completer.counts
        last = self._last.to_json() if self._last is not None else {}
        return {
            "requests": self._requests,
            "completions": counts.completions,
            "cancelled": counts.cancelled,
            "superseded": counts.superseded,
            **self._host.usage(),
            **self.feedback.to_json(),
            "last": {name: value for name, value in last.items() if name not in ("text", "token_ids")} or None,
        }

    def context(self, uri: str, position: Position) -> dict[str, Any]:
        """`specter/context`: what a request at this position would send. Raises RefusedError."""
        if self._excluded(uri):
            return {"excluded": True}
        document = self.documents.get(uri)
        if document is None:
            raise RefusedError("the document is not open")
        place = _place(document, position, None)
        assert place is not None, "only a selection makes a place impossible"
        prompt = None
        if self._config is not None:
            prompt = self._host.preview(self._request(document, place, self._config))
        if prompt is None:
            raise RefusedError("the models are not loaded")
        return {
            "prompt": prompt.text,
            "prefix": prompt.prefix,
            "suffix": prompt.suffix,
            "snippets": [{"uri": snippet.path, "text": snippet.text} for snippet in prompt.snippets],
            "tokens": prompt.tokens,
        }

    def restart_engine(self) -> None:
        self._host.restart()

    # --- settings and status ------------------------------------------------------------------------------------

    async def _configure(self, pushed: Any) -> None:
        settings, problems = parse(self._client.options, pushed, await self._pulled())
        self._settings = settings
        if settings.enabled:
            try:
                self._config, more = await self._host.configure(self, settings.engine)
                problems += more
            except BackendError as fault:
                _log.error("%s", fault)
        else:
            self._config = None
            self._host.leave(self, unload=True)
        self._complain(problems)
        self._tell_status()

    async def _pulled(self) -> Any:
        """The settings from `workspace/configuration`, if the client can be asked."""
        if not self._client.pulls_configuration:
            return None
        try:
            async with asyncio.timeout(_CONFIGURATION_S):
                answers = await self._wire.ask("workspace/configuration", {"items": [{"section": "specter"}]})
        except Exception as error:
            _log.warning("the client did not tell its settings (%s)", type(error).__name__)
            return None
        return answers[0] if isinstance(answers, list) and answers else None

    async def _register(self) -> None:
        method = "workspace/didChangeConfiguration"
        registration = {"id": method, "method": method, "registerOptions": {"section": "specter"}}
        try:
            await self._wire.ask("client/registerCapability", {"registrations": [registration]})
        except Exception as error:
            _log.warning("the client does not report changed settings (%s)", type(error).__name__)

    def _complain(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if problem not in self._complained:
                self._complained.add(problem)
                self._wire.tell("window/showMessage", {"type": 2, "message": str(problem)})

    def _host_changed(self, health: Health) -> None:
        if self._client.shows_progress:
            self._progress.show(health)
        self._tell_status()

    def _tell_status(self, again: bool = False) -> None:
        status = self._status()
        if again or status != self._told:
            self._told = status
            self._wire.tell("specter/status", status)

    def _status(self) -> dict[str, Any]:
        health, about = self._host.health, self._host.description()
        state, message = str(health.state), health.message
        if self._settings is not None and not self._settings.enabled:
            state, message = "off", "specter.enabled is false"
        elif state == "ready" and self._completer.live:
            state = "busy"
        elif state == "ready" and self._fault:
            state, message = "error", self._fault
        elif state == "off":
            state = "loading"  # about to be
        last = self._last
        return {
            "state": state,
            "message": message,
            "pair": about.get("pair", ""),
            "device": about.get("device", ""),
            "tokensPerSecond": round(last.tokens_per_second, 1) if last else 0.0,
            "acceptance": round(last.accepted / last.drafted, 3) if last and last.drafted else 0.0,
        }

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a suggestion goes: the model continues at `head` and knows what follows `tail` (code points)."""

    cursor: Position
    head: Position
    tail: Position
    selected: str  # what a suggestion must begin with
    start: Position  # the range it replaces, in wire positions
    end: Position


def _place(document: Document, position: Position, selected: Selected | None) -> _Place | None:
    """None if nothing that extends the popup's item could be shown."""
    cursor = document.locate(position)
    wire = document.wire(cursor)
    plain = _Place(cursor, cursor, cursor, "", wire, wire)
    if selected is None:
        return plain
    head, tail = document.locate(selected.start), document.locate(selected.end)
    if not (head.line == tail.line == cursor.line and head <= cursor <= tail):
        return plain  # not about this place: Neovim sends a visual selection
    typed = document.lines[cursor.line][head.character : cursor.character]
    if not selected.text.startswith(typed):
        return None  # the popup matched loosely (`cns` for `console`), and editors hide what does not begin as typed
    return _Place(cursor, head, tail, context.normalised(selected.text), document.wire(head), document.wire(tail))
