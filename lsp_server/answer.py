"""One request's way to its reply: it reads a generation behind what was typed since, and further ones if asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsp_server.generation import BackendError, Generation, Job
from lsp_server.typed import Typed

if TYPE_CHECKING:
    from engine.record import Completion
    from engine.request import CompletionRequest

_MOST_ITEMS = 3


class SupersededError(Exception):
    """A newer request for the same document took this one's place."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A text to show. Those of one generation have one id, however much of it is typed already."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request came to: texts to show, the measurements that are new, the fault if it failed."""

    offers: tuple[Offer, ...] = ()
    completions: tuple[Completion, ...] = ()
    first_text_s: float | None = None  # the engine's time to it, if it was asked anew
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """Who asks: told the text so far each time it has grown, and what it came to in the end.

    What `ended` returns is the reply.
    """

    grew: Callable[[Offer], None]
    ended: Callable[[Outcome], Any]


class Answer:
    """A request while it waits. Cancelling its task is the client's cancel; `supersede` is ours.

    `begin` makes further generations, for an alternative or, without a request, for the job itself.
    """

    def __init__(
        self,
        job: Job,
        generation: Generation,
        typed: Typed,
        listener: Listener,
        begin: Callable[[CompletionRequest | None], Generation],
    ) -> None:
        self.offered = False  # whether it came to a text to show
        self._job = job
        self._listener = listener
        self._begin = begin
        self._started = self._superseded = False
        self._generation: Generation | None = None
        self._read(generation, typed)
        self.task: asyncio.Task[Any] = asyncio.create_task(self._run(generation, typed))
        self.task.add_done_callback(lambda _: self._leave())

    def supersede(self) -> None:
        if not self._superseded:
            self._superseded = True
            if self._started:  # a task that is cancelled before it starts could not say why
                self.task.cancel()

    async def _run(self, generation: Generation, typed: Typed) -> Any:
        self._started = True
        try:
            if self._superseded:
                raise SupersededError
            outcome = await self._outcome(generation, typed)
            self.offered = bool(outcome.offers)
            return self._listener.ended(outcome)
        except asyncio.CancelledError:
            left = self._leave()
            if left is not None and left.stopped:
                await left.ended()
            # As in asyncio.timeout: if the client cancelled as well, its cancel is the one that counts.
            if not self._superseded or self.task.uncancel() > 0:
                raise
            raise SupersededError from None

    async def _outcome(self, generation: Generation, typed: Typed) -> Outcome:
        text = await self._text(generation, typed, self._listener.grew)
        if typed.text and not text and generation.finished:  # typed to its end while it was being written
            generation, typed = self._begin(None), Typed("")
            self._read(generation, typed)
            text = await self._text(generation, typed, self._listener.grew)
        if isinstance(generation.fault, BackendError):
            return Outcome(fault=str(generation.fault))
        if generation.fault is not None:
            raise generation.fault
        texts, completions = {text: generation.id}, [generation.take_completion()]
        first_text_s = generation.first_text_s if completions[0] is not None else None
        for request in self._job.alternatives:
            if generation.stopped or len(texts) - ("" in texts) == _MOST_ITEMS:
                break
            generation = self._begin(request)
            self._read(generation, Typed(""))
            texts.setdefault(await self._text(generation, Typed("")), generation.id)
            completions.append(generation.take_completion())
        if generation.stopped:
            texts = {}
        return Outcome(
            offers=tuple(Offer(id_, self._job.selected + text) for text, id_ in texts.items() if text),
            completions=tuple(completion for completion in completions if completion is not None),
            first_text_s=first_text_s,
        )

    async def _text(self, generation: Generation, typed: Typed, grew: Callable[[Offer], None] | None = None) -> str:
        """What the generation comes to behind what was typed; "" for nothing."""
        generation.start()
        shown = ""
        while generation.live:
            rest = generation.rest(typed, self._job)
            if grew is not None and len(rest) > len(shown):
                shown = rest
                grew(Offer(generation.id, self._job.selected + rest))
            await generation.growth()
        return generation.rest(typed, self._job) if generation.finished else ""

    def _read(self, generation: Generation, typed: Typed) -> None:
        self._leave()
        self._generation = generation
        generation.read(typed)

    def _leave(self) -> Generation | None:
        """The generation that it read until now."""
        left, self._generation = self._generation, None
        if left is not None:
            left.leave()
        return left
