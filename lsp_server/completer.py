"""One keystroke's pipeline, from a request for the engine to the text to show. Knows no protocol and no models.

A request is answered by a generation: one that runs or has ended, if the user has only typed along what it suggests,
or a new one. At most one lives per document, and everything that ends it does so in one way: it leaves the engine's
stream. What has ended by itself is kept, so that deleting and undoing return to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lsp_server.answer import Answer, Listener, SupersededError
from lsp_server.documents import Edit, Position
from lsp_server.generation import Generation, Job, Stream
from lsp_server.typed import Typed

if TYPE_CHECKING:
    from engine.request import CompletionRequest

_REMEMBERED = 24  # generations; each holds the text around its cursor


@dataclass(slots=True)
class Counts:
    """What became of the requests of one client."""

    completions: int = 0  # that had a text to show
    cancelled: int = 0
    superseded: int = 0
    typed_through: int = 0  # answered by a generation that was there


class Completer:
    """The generations of one client. `used_up` is told when the whole of a suggestion has come to stand in a document,
    and where it ends; `changed` when a generation begins or ends."""

    def __init__(self, used_up: Callable[[str, Position], None], changed: Callable[[], None]) -> None:
        self.counts = Counts()
        self._answers: dict[str, Answer] = {}
        self._last: dict[str, Generation] = {}
        self._remembered: deque[Generation] = deque(maxlen=_REMEMBERED)
        self._used_up = used_up
        self._changed = changed

    @property
    def live(self) -> int:
        return sum(generation.live for generation in self._last.values())

    def start(self, job: Job, stream: Stream, listener: Listener) -> asyncio.Task[Any]:
        """Complete; the task's result is the reply. What was asked for this document before raises SupersededError."""
        found = self._serving(job)
        if found is None:
            generation, typed = self._begin(job, stream), Typed("")
        else:
            generation, typed = found
            self.counts.typed_through += 1
            self._continue(generation)
        before = self._answers.get(job.uri)
        answer = Answer(
            job,
            generation,
            typed,
            listener,
            lambda request: self._begin(job, stream, request),
        )
        self._answers[job.uri] = answer
        if before is not None:
            before.supersede()
        answer.task.add_done_callback(lambda task: self._ended(job.uri, answer, task))
        return answer.task

    def prepare(self, job: Job, stream: Stream, gives_way: Callable[[], bool]) -> None:
        """Complete before anybody asks. An edit of another kind ends it, and so does `gives_way`."""
        if self._serving(job) is None:
            self._begin(job, stream).start(gives_way)

    def stop(self, uri: str) -> None:
        """Whatever runs for this document; who waits for it gets nothing."""
        if uri in self._last:
            self._last[uri].stop()

    def stop_all(self) -> None:
        for uri in self._last:
            self.stop(uri)

    def supersede(self, uri: str) -> None:
        """A request came that needs no generation."""
        if uri in self._answers:
            self._answers[uri].supersede()
        self.stop(uri)

    def closed(self, uri: str) -> None:
        self.stop(uri)
        self._last.pop(uri, None)
        self.forget(uri)

    def forget(self, uri: str | None = None) -> None:
        """Answer nothing more from what was written: of a document, or (None) because the settings have changed."""
        kept = [generation for generation in self._remembered if uri is not None and generation.job.uri != uri]
        self._remembered = deque(kept, _REMEMBERED)

    def edited(self, uri: str, edits: Sequence[Edit]) -> None:
        """The document was changed by its user."""
        generation = self._last.get(uri)
        if generation is not None and edits:
            generation.follow(edits)
            end = generation.used_up
            if end is not None:
                self._used_up(uri, end)

    def _serving(self, job: Job) -> tuple[Generation, Typed] | None:
        """The latest generation that answers the job, and what was typed since it began. Alternatives come last."""
        latest = [generation for generation in reversed(self._remembered) if generation.job.uri == job.uri]
        for generation in sorted(latest, key=lambda generation: generation.alternative):
            if (typed := generation.serves(job)) is not None:
                return generation, typed
        return None

    def _begin(self, job: Job, stream: Stream, alternative: CompletionRequest | None = None) -> Generation:
        previous = self._last.get(job.uri)
        if alternative is None:
            generation = Generation(job, stream, self._changed, previous)
        else:
            generation = Generation(
                replace(job, request=alternative), stream, self._changed, previous, alternative=True
            )
        self._remembered.append(generation)
        self._continue(generation)
        return generation

    def _continue(self, generation: Generation) -> None:
        """From now on, this is the document's one."""
        uri = generation.job.uri
        previous = self._last.get(uri)
        if previous is not None and previous is not generation:
            previous.stop()
        self._last[uri] = generation
        self._changed()

    def _ended(self, uri: str, answer: Answer, task: asyncio.Task[Any]) -> None:
        if self._answers.get(uri) is answer:
            del self._answers[uri]
        if task.cancelled():
            self.counts.cancelled += 1
        elif isinstance(task.exception(), SupersededError):
            self.counts.superseded += 1
        elif answer.offered:
            self.counts.completions += 1
        self._changed()
