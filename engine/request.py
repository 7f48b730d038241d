"""What a caller asks of the engine and what comes back: frozen values."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from engine.record import Completion

Mode = Literal["greedy", "sampled"]

# Below this temperature softmax(logits / T) is an argmax in float32, and the division may overflow to inf - inf.
_GREEDY_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from the target's logits.

    `top_k` 0, `top_p` 1 and `min_p` 0 switch that filter off. `seed` None takes a fresh seed for each completion.
    """

    mode: Mode = "greedy"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the law is an argmax: said so, temperature (near) zero, or one token kept."""
        return self.mode == "greedy" or self.temperature < _GREEDY_TEMPERATURE or self.top_k == 1

    @property
    def repeatable(self) -> bool:
        """Whether the user wants the same draws each time."""
        return not self.greedy and self.seed is not None

    def fresh_seed(self) -> int:
        """The seed of one completion: the user's, or a new one that the measurements report."""
        return secrets.randbits(32) if self.seed is None else self.seed


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of another file that may help: its path as the model should see it, and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """The text around a cursor and how to complete it. Line ends are `\\n`.

    `deadline_s` counts from the moment the engine takes the request. `stop` strings end the text and are not part of
    it. `document` is what the file is called in the workspace index, if it is there. `until` is told the text so far
    after each step, on the thread that decodes; True ends the text there. Raises ValueError for a limit below 1.
    """

    prefix: str
    suffix: str = ""
    path: str = ""
    repository: str = ""
    snippets: tuple[Snippet, ...] = ()
    sampling: Sampling = GREEDY
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    deadline_s: float | None = None
    document: str = ""
    until: Callable[[str], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if "" in self.stop:
            raise ValueError("a stop string must not be empty")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of streamed text; the pieces concatenate to the completion's text.

    `tokens` were computed for it. The last chunk of a stream, and only that, carries the completion; its own text may
    be empty.
    """

    text: str
    tokens: int = 0
    completion: Completion | None = None
