"""One keystroke's pipeline, from a request for the engine to the text to show. Knows no protocol and no models.

At most one generation lives per document. A newer request, an edit that contradicts the suggestion, the document's
closing and the client's cancel all end it in one way: its task leaves the engine's stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lsp_server import context
from lsp_server.documents import Edit, Position
from lsp_server.shape import Shape

if TYPE_CHECKING:
    from engine.record import Completion
    from engine.request import Chunk, CompletionRequest

Reason = Literal["superseded", "edited", "closed"]


class SupersededError(Exception):
    """A newer request for the same document took this one's place."""


class BackendError(Exception):
    """The engine failed at this request; one line, without the user's text."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to complete. `cursor` is in code points; `selected` is the popup's text that a suggestion must begin with,
    and is in the request's prefix already."""

    uri: str
    cursor: Position
    request: CompletionRequest
    shape: Shape
    selected: str = ""
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a generation came to: a text to show or "", measurements if it ran to its end, the fault if it failed."""

    text: str = ""
    completion: Completion | None = None
    fault: str | None = None


@dataclass(slots=True)
class Counts:
    """What became of the generations of one client."""

    completions: int = 0  # that had a text to show
    cancelled: int = 0
    superseded: int = 0


# The engine's stream; raises BackendError.
Stream = Callable[["CompletionRequest"], AsyncGenerator["Chunk", None]]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who waits for a generation: told the text so far each time it has grown, and what it came to in the end.

    What `ended` returns is the result of the generation's task.
    """

    grew: Callable[[str], None]
    ended: Callable[[Outcome], Any]


class Generation:
    """One job while it runs, in the task `task`. Cancelling that task is the client's cancel; `stop` is ours."""

    def __init__(self, job: Job, stream: Stream, listener: Listener, previous: Generation | None) -> None:
        self._job = job
        self._stream = stream
        self._listener = listener
        self.offered = False  # whether it came to a text to show
        self._started = False
        self._stopped: Reason | None = None
        self._text = ""  # as the model wrote it
        self._typed = ""  # what the user wrote at the cursor since
        self.task: asyncio.Task[Any] = asyncio.create_task(self._run(previous))

    def stop(self, reason: Reason) -> None:
        """End within a cycle of the engine."""
        if self._stopped is None:
            self._stopped = reason
            if self._started:  # a task that is cancelled before it starts could not say why
                self.task.cancel()

    def follow(self, edits: list[Edit]) -> None:
        """Go on if the user only typed what is suggested; stop otherwise."""
        for edit in edits:
            place = _advanced(self._job.cursor, self._typed)
            self._typed += context.normalised(edit.text)
            if edit.start != place or edit.end != place or not self._agrees():
                self.stop("edited")

    async def _run(self, previous: Generation | None) -> Any:
        self._started = True
        try:
            if self._stopped is not None:
                return self._stopped_outcome()
            await self._wait(previous)
            outcome = await self._generate()
            self.offered = bool(outcome.text)
            return self._listener.ended(outcome)
        except BackendError as fault:
            return self._listener.ended(Outcome(fault=str(fault)))
        except asyncio.CancelledError:
            # As in asyncio.timeout: if the client cancelled as well, its cancel is the one that counts.
            if self._stopped is None or self.task.uncancel() > 0:
                raise
            return self._stopped_outcome()

    def _stopped_outcome(self) -> Any:
        if self._stopped == "superseded":
            raise SupersededError
        return self._listener.ended(Outcome())

    async def _wait(self, previous: Generation | None) -> None:
        """For the previous generation's end, and for the pause the user asked for."""
        if previous is not None and not previous.task.done():
            await asyncio.wait([previous.task])
        if self._job.delay_s > 0:
            await asyncio.sleep(self._job.delay_s)

    async def _generate(self) -> Outcome:
        shown = ""
        async with aclosing(self._stream(self._job.request)) as chunks:
            async for chunk in chunks:
                self._text += chunk.text
                if not self._agrees():
                    return Outcome(completion=chunk.completion)
                if chunk.completion is not None:
                    return Outcome(self._shown(finished=True), chunk.completion)
                text = self._shown(finished=False)
                if len(text) > len(shown):
                    shown = text
                    self._listener.grew(text)
        return Outcome(self._shown(finished=True))

    def _agrees(self) -> bool:
        return self._text.startswith(self._typed) or self._typed.startswith(self._text)

    def _shown(self, finished: bool) -> str:
        kept = self._job.shape.shown(self._text, finished)
        return self._job.selected + kept if kept else ""


class Completer:
    """The generations of one client, at most one a document, and their counts."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._live: dict[str, Generation] = {}

    @property
    def live(self) -> int:
        return len(self._live)

    def start(self, job: Job, stream: Stream, listener: Listener) -> asyncio.Task[Any]:
        """Complete; whatever runs for this document is superseded. The task raises SupersededError in its turn."""
        previous = self._live.get(job.uri)
        self.stop(job.uri, "superseded")
        generation = Generation(job, stream, listener, previous)
        self._live[job.uri] = generation
        generation.task.add_done_callback(lambda task: self._ended(job.uri, generation, task))
        return generation.task

    def stop(self, uri: str, reason: Reason) -> None:
        generation = self._live.get(uri)
        if generation is not None:
            generation.stop(reason)

    def stop_all(self, reason: Reason) -> None:
        for uri in self._live:
            self.stop(uri, reason)

    def edited(self, uri: str, edits: list[Edit]) -> None:
        """The document was changed by its user."""
        generation = self._live.get(uri)
        if generation is not None:
            generation.follow(edits)

    def _ended(self, uri: str, generation: Generation, task: asyncio.Task[Any]) -> None:
        if self._live.get(uri) is generation:
            del self._live[uri]
        if task.cancelled():
            self.counts.cancelled += 1
        elif isinstance(task.exception(), SupersededError):
            self.counts.superseded += 1
        elif generation.offered:
            self.counts.completions += 1


def _advanced(place: Position, text: str) -> Position:
    """Where `text`, inserted at `place`, ends."""
    lines = text.split("\n")
    if len(lines) == 1:
        return Position(place.line, place.character + len(text))
    return Position(place.line + len(lines) - 1, len(lines[-1]))
