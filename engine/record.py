"""What one completion measured: the value every command and the server report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

Stop = Literal["eos", "max_tokens", "stop", "deadline", "cancelled"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished (or cancelled) completion and its measurements.

    Invariant: drafted = accepted + rejected + discarded. A guess is *accepted* if it was emitted, *rejected* if the
    target judged it and chose otherwise, *discarded* if it was never judged or came after the end of the text.
    """

    text: str
    token_ids: tuple[int, ...]
    drafted: int
    accepted: int
    rejected: int
    discarded: int
    accepted_lengths: tuple[int, ...]  # guesses emitted, one entry a cycle
    rejected_at: tuple[int, ...]  # index in the draft of the first rejected guess, cycles with a rejection only
    target_forwards: int  # verify forwards, with the one that finishes the prompt
    draft_ms: float
    verify_ms: float
    prefill_ms: float  # prompt chunks before the first verify forward
    ttft_ms: float  # from the request's arrival to its first token; total_ms if there was none
    total_ms: float
    prompt_tokens: int
    reused_tokens: int  # prompt tokens whose keys and values were in the target's cache already
    peak_memory_mb: float
    stop: Stop
    drafter: str
    mode: str
    seed: int | None
    pair: str
    notes: tuple[str, ...] = field(default=())  # what did not go as planned, one line each, no code in it
    counted: int | None = None  # tokens, where their ids are not known
    unknown: frozenset[str] = frozenset()  # measurements that nobody could take: null in JSON

    @property
    def tokens(self) -> int:
        """Number of tokens emitted, the end-of-text token not counted."""
        return len(self.token_ids) if self.counted is None else self.counted

    @property
    def tokens_per_second(self) -> float:
        return 1000 * self.tokens / self.total_ms if self.total_ms > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """The measurements under the names of the README's table, times in milliseconds."""
        values = dataclasses.asdict(self)
        del values["counted"], values["unknown"]
        for name, value in values.items():
            if isinstance(value, float):
                values[name] = round(value, 3)
        values |= {"tokens": self.tokens, "tokens_per_second": round(self.tokens_per_second, 2)}
        return values | dict.fromkeys(self.unknown)
