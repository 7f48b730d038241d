"""Where guesses come from. Any source will do: the verifier makes the output exact whatever is proposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from engine.policy import UNLIMITED, Budget
from engine.request import Sampling
from engine.sampling import Noise
from engine.speculation import Draft


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter may look at: the prompt and what was emitted, how tokens are sampled, the noise, and what guesses
    are worth."""

    tokens: Sequence[int]
    prompt_length: int
    sampling: Sampling
    noise: Noise
    budget: Budget = UNLIMITED

    @property
    def position(self) -> int:
        """Index in the completion of the next token."""
        return len(self.tokens) - self.prompt_length


class Drafter(Protocol):
    """Guesses the next tokens. A fault in it costs speed, never an answer: the decoder goes on without the guess."""

    name: str

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        """Whatever a new prompt needs, in pieces between which it can be left."""
        ...

    def propose(self, context: Context, limit: int) -> Draft:
        """Up to `limit` guesses for the tokens after `context.tokens`."""
        ...


@runtime_checkable
class Watcher(Protocol):
    """Hears what the target thinks: laws that were computed anyway. A drafter may be one, and is told of its drafts."""

    def saw(self, context: Context, draft: Draft, logits: Tensor, path: Sequence[int]) -> None:
        """logits: [len(draft) + 1, vocab], the target's after the context and after each guess. path: what came true.
        `context.tokens` may grow afterwards."""
        ...
