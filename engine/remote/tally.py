"""From a server's events to text that is certain, every reason to stop, and the measurements."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from engine.prompt import EncodedPrompt
from engine.record import Completion, Stop
from engine.remote.probe import Server
from engine.request import CompletionRequest
from engine.text import StopFinder

_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"
# What only the server could measure, and does not tell of a single completion.
_UNKNOWN = (
    *("drafted", "accepted", "rejected", "discarded", "accepted_lengths", "rejected_at", "target_forwards"),
    *("draft_ms", "verify_ms", "prefill_ms", "reused_tokens", "peak_memory_mb"),
)


class Tally:
    """One completion while it streams."""

    def __init__(self, request: CompletionRequest, server: Server, prompt: EncodedPrompt, began: float) -> None:
        self.stop: Stop | None = None
        self.tokens = 0
        self.text = ""
        self.finished = False  # by the server itself
        self._request = request
        self._server = server
        self._prompt = prompt
        self.began = began  # time.perf_counter()
        self._ttft_ms: float | None = None
        self._finder = StopFinder((*request.stop, *server.scan))
        self._ids = list[int]()
        self._prompt_tokens: int | None = len(prompt.ids) if "ids" in server.layout.name else None
        self._reused: int | None = None

    def take(self, event: Mapping[str, Any]) -> str:
        """Books one event; returns the text that is certain by it. Sets `stop` at the end of the text."""
        self.count(event)
        choice = _choice(event)
        text, ids = choice.get("text"), choice.get("token_ids")
        if isinstance(ids, list) and all(isinstance(token, int) for token in ids):
            self._ids += ids
        if (ids or text) and self._ttft_ms is None:
            self._ttft_ms = 1000 * (time.perf_counter() - self.began)
        piece = self._finder.push(text) if isinstance(text, str) else ""
        self.text += piece
        if self._finder.found:
            self.stop = "stop" if self._finder.found in self._request.stop else "eos"
        elif piece and self._request.until is not None and self._request.until(self.text):
            self.stop = "stop"
        elif choice.get("finish_reason") is not None:
            self.finished = True
            self.stop = "max_tokens" if choice["finish_reason"] == "length" else "eos"
        elif self.tokens > self._request.max_tokens:
            self.stop = "max_tokens"  # a server that does not count for itself
        return piece

    def rest(self) -> str:
        """The text that was held back, when nothing more comes."""
        piece = self._finder.push("", final=True).rstrip(_HALF_CHARACTER)
        self.text += piece
        return piece

    def count(self, event: Mapping[str, Any]) -> None:
        """Tokens as the server counts them; else each event with text is one at least."""
        usage = event.get("usage")
        if isinstance(usage, dict):
            done, prompt, details = (
                usage.get(n) for n in ("completion_tokens", "prompt_tokens", "prompt_tokens_details")
            )
            self.tokens = max(self.tokens, done) if isinstance(done, int) else self.tokens
            self._prompt_tokens = prompt if isinstance(prompt, int) else self._prompt_tokens
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            self._reused = cached if isinstance(cached, int) else self._reused
        elif (choice := _choice(event)).get("text") and choice.get("finish_reason") is None:
            self.tokens += 1

    def completion(self, seed: int | None) -> Completion:
        """The measurements; null is what this server does not tell."""
        total_ms = 1000 * (time.perf_counter() - self.began)
        ids = tuple(self._ids)
        # An end marker is none of the text's tokens, but servers count it.
        ended = self.stop == "eos" and bool(ids) and len(ids) == self.tokens
        unknown = set(_UNKNOWN)
        if self._reused is not None:
            unknown.discard("reused_tokens")
        if self._prompt_tokens is None:
            unknown.add("prompt_tokens")
        if not ids and self.tokens:
            unknown.add("token_ids")
        return Completion(
            text=self.text,
            token_ids=ids[:-1] if ended else ids,
            counted=None if ids else self.tokens,
            drafted=0,
            accepted=0,
            rejected=0,
            discarded=0,
            accepted_lengths=(),
            rejected_at=(),
            target_forwards=0,
            draft_ms=0.0,
            verify_ms=0.0,
            prefill_ms=0.0,
            ttft_ms=total_ms if self._ttft_ms is None else self._ttft_ms,
            total_ms=total_ms,
            prompt_tokens=self._prompt_tokens or 0,
            reused_tokens=self._reused or 0,
            peak_memory_mb=0.0,
            stop=self.stop or "max_tokens",
            drafter="server",
            mode="greedy" if self._request.sampling.greedy else "sampled",
            seed=seed,
            pair=self._server.model,
            unknown=frozenset(unknown),
        )


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
