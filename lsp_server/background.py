"""Work beside the event loop, in threads that do not hold up the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


async def off_loop(work: Callable[[], _T]) -> _T:
    """Run `work` in a daemon thread. asyncio's own pool would hold up the end of the process until it is done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[_T | None, BaseException | None] = (work(), None)
        except BaseException as error:
            outcome = (None, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="specter-background", daemon=True).start()
    return await done
