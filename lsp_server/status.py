"""What the user is told about the server: `specter/status` when it changes, and the load of the models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsp_server.answer import Outcome
from lsp_server.engine_host import EngineHost, Health
from lsp_server.progress import LoadProgress
from lsp_server.wire import Wire

if TYPE_CHECKING:
    from engine.record import Completion


class Status:
    """One client's view of the engine and of its latest completion."""

    def __init__(self, host: EngineHost, wire: Wire, shows_progress: bool) -> None:
        self.last: Completion | None = None
        self.enabled = True
        self.busy = False
        self._fault = ""  # of the latest completion, "" if it had none
        self._host = host
        self._wire = wire
        self._progress = LoadProgress(wire) if shows_progress else None
        self._told: dict[str, Any] = {}

    def start(self) -> None:
        self._host.watchers.add(self._host_changed)

    def close(self) -> None:
        self._host.watchers.discard(self._host_changed)

    def record(self, outcome: Outcome) -> None:
        """A completion has ended."""
        if outcome.fault is not None:
            self._fault = outcome.fault
        elif outcome.completions:
            self._fault, self.last = "", outcome.completions[0]

    def tell(self, again: bool = False) -> None:
        """Send the status if it has changed, or if someone just asked for what is not to be had (`again`)."""
        status = self._current()
        if again or status != self._told:
            self._told = status
            self._wire.tell("specter/status", status)

    def _host_changed(self, health: Health) -> None:
        if health.state == "loading":
            self._fault = ""  # of an engine that is no more
        if self._progress is not None:
            self._progress.show(health)
        self.tell()

    def _current(self) -> dict[str, Any]:
        state, message = self._state()
        about, last = self._host.description(), self.last
        return {
            "state": state,
            "message": message,
            "pair": about.get("pair", ""),
            "device": about.get("device", ""),
            "tokensPerSecond": round(last.tokens_per_second, 1) if last else 0.0,
            "acceptance": round(last.accepted / last.drafted, 3) if last and last.drafted else 0.0,
        }

    def _state(self) -> tuple[str, str]:
        health = self._host.health
        if not self.enabled:
            return "off", "specter.enabled is false"
        if health.state == "ready" and self.busy:
            return "busy", ""
        if health.state == "ready" and self._fault:
            return "error", self._fault
        if health.state == "off":
            return "loading", "starting"
        return health.state, health.message
