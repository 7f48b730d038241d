"""Shows the load of the models as LSP work-done progress: every token that begins also ends."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from lsp_server.engine_host import Health
from lsp_server.wire import Wire

_numbers = itertools.count(1)


class LoadProgress:
    """One client's progress bar."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._task: asyncio.Task[None] | None = None  # creating the token, then waiting for the end
        self._token: str | None = None  # begun, not ended
        self._percent = -1

    def show(self, health: Health) -> None:
        """The engine's health has changed."""
        if health.state == "loading":
            if self._task is None:
                self._task = asyncio.create_task(self._begin(f"specter/load/{next(_numbers)}", health))
            self._report(health)
            return
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._token is not None:
            self._tell_progress({"kind": "end", "message": health.message or health.state})
            self._token = None

    async def _begin(self, token: str, health: Health) -> None:
        try:
            await self._wire.ask("window/workDoneProgress/create", {"token": token})
        except Exception:
            return  # the client refused; the status says the same
        self._token, self._percent = token, 0
        self._tell_progress(
            {"kind": "begin", "title": "Specter", "message": health.message, "percentage": 0, "cancellable": False}
        )

    def _report(self, health: Health) -> None:
        percent = int(100 * health.fraction)
        if self._token is not None and percent > self._percent:
            self._percent = percent
            self._tell_progress({"kind": "report", "message": health.message, "percentage": percent})

    def _tell_progress(self, value: dict[str, Any]) -> None:
        self._wire.tell("$/progress", {"token": self._token, "value": value})
