"""What every engine offers, wherever its models run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol

from engine.prompt import EncodedPrompt
from engine.request import Chunk, CompletionRequest
from engine.sources import Report


class EngineError(Exception):
    """A completion failed; the engine goes on. One line, without any of the user's text."""


class Engine(Protocol):
    """Streams completions. All methods but `index` belong to the event loop's thread."""

    @property
    def ready(self) -> bool:
        """Whether it was loaded."""

    @property
    def trouble(self) -> str:
        """Why no completions can be had for the moment, in one line; "" if they can."""

    @property
    def description(self) -> dict[str, str]:
        """pair, device, dtype and drafter, once loaded, and a notice if there is something to be said of them."""

    @property
    def reads_other_files(self) -> bool:
        """Whether the model was trained to see pieces of other files before the document."""

    @property
    def uses_workspace(self) -> bool:
        """Whether guesses are looked for in the workspace index."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever `trouble` or the notice does, on the event loop."""

    def prompt_room(self, max_tokens: int) -> int:
        """Tokens of the longest prompt beside a completion of `max_tokens`, once loaded."""

    async def load(self, report: Report = ...) -> None:
        """Makes it ready; `report` is called on the event loop. Raises ConfigError and EngineError."""

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The completion's text as it becomes certain; the last chunk carries its measurements. Leaving the stream
        cancels it. Raises EngineError."""

    def preview(self, request: CompletionRequest) -> EncodedPrompt:
        """Exactly the prompt that a stream of this request would send. Raises EngineError if it is not ready."""

    def index(self, texts: Mapping[str, str]) -> bool:
        """Puts texts into the workspace index by name; an empty one is removed. False if some had no room."""

    def usage(self) -> dict[str, Any]:
        """`liveGenerations`, `waitingRequests`, `engineRequests` and `engineTokens` (of all, the cancelled ones too),
        `tokensAfterCancel`, and `cancelToIdleMs` {p50, p99, max}."""

    def close(self) -> None:
        """Ends everything; open streams fail. Idempotent, and for any thread."""
