"""Offers to download a better pair than the one that `"pair": "auto"` found here, and fetches it if the user agrees.

Once in the life of the process; only where there is a GPU. Knows the protocol's messages by name, no tensor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lsp_server.background import off_loop
from lsp_server.engine_host import EngineHost, Health
from lsp_server.wire import Wire

if TYPE_CHECKING:
    from engine.pairs import KnownPair

Better = Callable[[str], "KnownPair | None"]
_TOKEN = "specter/download"
_INFO, _WARNING = 3, 2
_YES, _NO = "Download", "Not now"


def _better(than: str) -> KnownPair | None:
    from engine.loading import better_pair

    return better_pair(than)


class PairOffer:
    """One client's view of the offer; the host remembers that it was made."""

    def __init__(self, host: EngineHost, wire: Wire, shows_progress: bool, better: Better = _better) -> None:
        self._host = host
        self._wire = wire
        self._shows_progress = shows_progress
        self._better = better
        self._cancelled = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._host.watchers.add(self._host_changed)

    def close(self) -> None:
        """The client has gone, and with it who wanted the download."""
        self._host.watchers.discard(self._host_changed)
        self._cancelled.set()

    def cancel(self, token: object) -> None:
        """The user stops what this progress token shows."""
        if token == _TOKEN:
            self._cancelled.set()

    def _host_changed(self, health: Health) -> None:
        if health.state == "ready" and self._host.chooses_pair and not self._host.offered_pair:
            self._host.offered_pair = True
            self._task = asyncio.create_task(self._offer(self._host.description().get("pair", "")))

    async def _offer(self, now: str) -> None:
        pair = await off_loop(lambda: self._better(now))
        if pair is None:
            return
        size = 2 * sum(model.billions for model in pair.models)
        message = f"Specter: this GPU has room for {pair.name} (a download of {size:.0f} GB; licence: {pair.licence})."
        actions = [{"title": _YES}, {"title": _NO}]
        question = {"type": _INFO, "message": message, "actions": actions}
        answer = await self._wire.ask("window/showMessageRequest", question)
        if isinstance(answer, dict) and answer.get("title") == _YES:
            await self._fetch(pair)

    async def _fetch(self, pair: KnownPair) -> None:
        from engine.download import DownloadError, download

        loop = asyncio.get_running_loop()

        def report(fraction: float, message: str) -> None:  # on the download's thread
            if self._cancelled.is_set():
                raise _CancelledError
            value = {"kind": "report", "message": message, "percentage": int(100 * fraction)}
            loop.call_soon_threadsafe(self._progress, value)

        await self._begin(pair)
        end = f"{pair.name} is on this machine"
        try:
            await off_loop(lambda: download(pair, report))
            self._host.restart()
        except _CancelledError:
            end = "cancelled; what has arrived is kept"
        except DownloadError as error:
            end = str(error)
            self._wire.tell("window/showMessage", {"type": _WARNING, "message": f"Specter: {pair.name}: {error}"})
        self._progress({"kind": "end", "message": end})

    async def _begin(self, pair: KnownPair) -> None:
        if self._shows_progress:
            try:
                await self._wire.ask("window/workDoneProgress/create", {"token": _TOKEN})
            except Exception:
                self._shows_progress = False  # the client refused
        title = f"Specter: {pair.name}"
        self._progress({"kind": "begin", "title": title, "percentage": 0, "cancellable": True})

    def _progress(self, value: dict[str, Any]) -> None:
        if self._shows_progress:
            self._wire.tell("$/progress", {"token": _TOKEN, "value": value})


class _CancelledError(Exception):
    """The user, or the end of the session, stopped the download."""
