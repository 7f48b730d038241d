"""One generation of the engine: the text that grows, and when it stops. Who reads it may change while it runs."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsp_server import context
from lsp_server.documents import Edit, Position
from lsp_server.shape import Shape
from lsp_server.typed import Typed, advanced, may_become, spliced, typed_since

if TYPE_CHECKING:
    from engine.record import Completion
    from engine.request import Chunk, CompletionRequest

# A client that follows its user's typing cancels the old request and sends the new one in the same moment.
_GRACE_S = 0.1


class BackendError(Exception):
    """The engine failed at this request; one line, without the user's text."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to complete. `cursor` is in code points; `selected` is the popup's text that a suggestion must begin with,
    and is in the request's prefix already. `alternatives` are further requests for the same place, for those who ask
    for more than one text. `ahead` is in the request's prefix, too, but has yet to be typed at the cursor."""

    uri: str
    cursor: Position
    request: CompletionRequest
    shape: Callable[[], Shape]  # read from the text around the cursor when it is needed, which takes a few ms
    selected: str = ""
    ahead: str = ""
    delay_s: float = 0.0
    alternatives: tuple[CompletionRequest, ...] = ()


# The engine's stream; raises BackendError.
Stream = Callable[["CompletionRequest"], AsyncGenerator["Chunk", None]]


class Generation:
    """A job while it runs and after. It starts when first read or when told to.

    Once stopped it answers nobody: a new prompt would have to go on behind its text, and comes to other text than a
    fresh request does.
    """

    def __init__(
        self,
        job: Job,
        stream: Stream,
        ended: Callable[[], None],
        previous: Generation | None = None,
        alternative: bool = False,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.job = job
        self.alternative = alternative
        self.fault: Exception | None = None
        self.finished = False  # to the model's own end
        self.stopped = False
        self.first_text_s: float | None = None  # from the engine's start on it
        self._completion: Completion | None = None
        self._stream = stream
        self._tell_ended = ended
        self._previous = previous.unfinished() if previous is not None else None
        self._text = ""  # as the model wrote it
        self._shown_at, self._shown_text = (-1, False), ""  # the shape reads the whole text each time
        self._place = job.cursor if not job.selected else None  # the popup's text is not in the document yet
        self._typed: str | None = ""  # what stands there now; None once something else has changed
        self._typing = False  # whether the user typed along since the last request
        self._readers = 0
        self._gives_way: Callable[[], bool] | None = None
        self._task: asyncio.Task[None] | None = None
        self._grew = asyncio.Event()

    @property
    def live(self) -> bool:
        return not (self.finished or self.stopped or self.fault)

    def start(self, gives_way: Callable[[], bool] | None = None) -> None:
        """With `gives_way`, it stops once that is true and nobody reads."""
        if self._task is None and self.live:
            self._gives_way = gives_way
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(lambda _: self._tell_ended())

    def stop(self) -> None:
        """End within a cycle of the engine."""
        if self.live:
            self.stopped = True
            if self._task is not None:
                self._task.cancel()
            self._tell()

    def unfinished(self) -> Generation | None:
        """What the engine may still work on: this one, or what this one would have waited for."""
        if self._task is None:
            return self._previous and self._previous.unfinished()
        return None if self._task.done() else self

    async def ended(self) -> None:
        """Until the engine has nothing more to do for it."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    # What the user does

    def follow(self, edits: Sequence[Edit]) -> None:
        """The document was changed: go on if the user only typed what is suggested, stop otherwise."""
        if self._typed is not None:
            self._typed = None if self._place is None else spliced(self._typed, self._place, edits)
        if self._typed is None or not may_become(self._typed, self._expected(), growing=self.live):
            self.stop()
        else:
            self._typing = True

    @property
    def used_up(self) -> Position | None:
        """The place behind the whole suggestion, once all of it stands in the document."""
        if self.finished and self._place is not None and self._typed and self._typed == self._expected():
            return advanced(self._place, self._typed)
        return None

    # Who reads it

    def serves(self, job: Job) -> Typed | None:
        """What was typed since, if this generation answers that job; None if it does not."""
        typed = typed_since(self.job.request, job.request)
        if typed is None or self.stopped or self.fault:
            return None
        # Nothing typed: the same question again. Typed, but nothing there to agree with it: it would be a gamble.
        return typed if typed == Typed("") or self.rest(typed, job) else None

    def rest(self, typed: Typed, job: Job) -> str:
        """What to show behind what was typed, which is where `job` is; "" for nothing."""
        shown = self._shown()
        if not shown.startswith(typed.text):
            return ""
        rest = shown[len(typed.text) :]
        return job.shape().shown(rest, self.finished) if typed.closers else rest

    def read(self, typed: Typed) -> None:
        """Somebody waits for it, behind what was typed."""
        self._readers += 1
        self._typing = False
        if self._place is not None:
            self._typed = self.job.ahead + typed.text  # even if edits had led elsewhere for a while

    def leave(self) -> None:
        """Nobody may be left to wait. If its user types along, somebody will be in a moment."""
        self._readers -= 1
        if self._readers == 0 and self.live:
            if self._typing:
                asyncio.get_running_loop().call_later(_GRACE_S, self._abandon)
            else:
                self.stop()

    async def growth(self) -> None:
        """Until there is more text, or an end."""
        await self._grew.wait()

    def take_completion(self) -> Completion | None:
        """The measurements, to the first who asks."""
        completion, self._completion = self._completion, None
        return completion

    def _abandon(self) -> None:
        if self._readers == 0:
            self.stop()

    def _shown(self) -> str:
        state = len(self._text), self.finished
        if self._shown_at != state:
            # No shape is read for a request that is taken back before there is a text, as most are.
            self._shown_text = self.job.shape().shown(self._text, self.finished) if self._text else ""
            self._shown_at = state
        return self._shown_text

    def _expected(self) -> str:
        """What the user is expected to write at the job's cursor."""
        return self.job.ahead + self._shown()

    def _tell(self) -> None:
        grew, self._grew = self._grew, asyncio.Event()
        grew.set()

    async def _run(self) -> None:
        try:
            if self._previous is not None:
                await self._previous.ended()
                self._previous = None
            if self.job.delay_s > 0:
                await asyncio.sleep(self.job.delay_s)
            await self._generate()
        except BackendError as fault:
            self.fault = fault
        except asyncio.CancelledError:
            self.stopped = True
        except Exception as error:
            self.fault = error
        self._tell()

    async def _generate(self) -> None:
        begun = time.perf_counter()
        async with aclosing(self._stream(context.ending(self.job.request, self.job.shape()))) as chunks:
            async for chunk in chunks:
                self._text += chunk.text
                if chunk.text and self.first_text_s is None:
                    self.first_text_s = time.perf_counter() - begun
                self._completion = chunk.completion
                if self._readers == 0 and self._gives_way is not None and self._gives_way():
                    self.stopped = True
                    return
                if self._typed is not None and not may_become(self._typed, self._expected(), growing=True):
                    self.stopped = True
                    return
                self._tell()
        # A stream that ends without measurements was closed from elsewhere.
        self.finished = self._completion is not None
        self.stopped = not self.finished
