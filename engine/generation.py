"""One completion from request to measurements: prompt, decoding, text, and every reason to stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator

import torch

from engine.decoder import SpeculativeDecoder, Step
from engine.drafters import Drafter
from engine.loading import LoadedPair
from engine.prompt import EncodedPrompt
from engine.record import Completion, Stop
from engine.request import Chunk, CompletionRequest
from engine.sampling import Noise
from engine.text import TextStream


def generate(
    pair: LoadedPair, request: CompletionRequest, drafter: Drafter | None, draft_length: int | None = None
) -> Generator[Chunk, None, None]:
    """Streams one completion. A chunk without text is a moment at which the stream can be left; the last chunk
    carries the measurements. `drafter` None decodes plainly, by the same loop.
    """
    tally = _Tally()
    prompt = encode(pair, request)
    tally.reused_tokens = pair.target.shared_prefix(prompt.ids[:-1])
    yield Chunk("")  # a pause: another document's rows may have been put away
    seed = None if request.sampling.greedy else request.sampling.fresh_seed()
    # Which tokens a seed gives depends on where guesses stood: a user who gives one wants the same text each time.
    policy = pair.policy if draft_length is None and not request.sampling.repeatable else None
    if draft_length is None:
        draft_length = pair.draft_length if policy is None else pair.longest_draft
    watcher = None if pair.learner is None else pair.learner.lessons
    decoder = SpeculativeDecoder(
        pair.target, drafter, request.sampling, Noise(seed or 0), pair.end_tokens, draft_length, policy, watcher
    )
    text = TextStream(lambda ids: pair.tokenizer.decode(ids, skip_special_tokens=False), request.stop, prompt.ids[-1:])
    for step in decoder.decode(prompt.ids, request.max_tokens):
        piece = tally.take(step, text, pair.end_tokens)
        if tally.stop is None and piece and request.until is not None and request.until("".join(tally.pieces)):
            tally.stop = "stop"
        if tally.stop is None and request.deadline_s is not None and tally.seconds() > request.deadline_s:
            tally.stop = "deadline"
        yield Chunk(piece, len(step.tokens))
        if tally.stop is not None:
            break
    last = text.finish()
    tally.pieces.append(last)
    yield Chunk(last, completion=tally.completion(pair, request, prompt, drafter, seed))


def encode(pair: LoadedPair, request: CompletionRequest) -> EncodedPrompt:
    """The prompt of a request, with room for its completion in the pair's context."""
    return pair.prompts.build(request, prompt_room(pair, request.max_tokens))


def prompt_room(pair: LoadedPair, max_tokens: int) -> int:
    """Tokens of the longest prompt; a completion gets half of the context at the most."""
    return max(pair.context - max_tokens, pair.context // 2)


class _Tally:
    """Adds up what the steps of one completion did."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.stop: Stop | None = None
        self.pieces: list[str] = []
        self.reused_tokens = 0
        self._token_ids: list[int] = []
        self._drafted = self._accepted = self._judged = self._forwards = 0
        self._accepted_lengths: list[int] = []
        self._rejected_at: list[int] = []
        self._draft_ms = self._verify_ms = self._prefill_ms = 0.0
        self._ttft_ms: float | None = None
        self._notes: list[str] = []

    def seconds(self) -> float:
        """Since the request came."""
        return time.perf_counter() - self._started

    def take(self, step: Step, text: TextStream, end_tokens: frozenset[int]) -> str:
        """Books one step, its tokens one by one, up to the one that ends the text; returns the text that is certain."""
        if step.fault:
            self._notes.append(step.fault)
        if not step.forwards:
            return ""
        if self._ttft_ms is None:
            self._ttft_ms = 1000 * self.seconds()
            self._prefill_ms = max(self._ttft_ms - step.draft_ms - step.verify_ms, 0.0)
        pieces, used = list[str](), 0
        for token in step.tokens:
            used += 1
            if token in end_tokens:
                self.stop = "eos"
                break
            self._token_ids.append(token)
            pieces.append(text.push(token))
            if text.stopped:
                self.stop = "stop"
                break
        self._count(step, used)
        self.pieces += pieces
        return "".join(pieces)

    def _count(self, step: Step, used: int) -> None:
        accepted = min(step.accepted, used)
        judged = step.judged if used == len(step.tokens) else accepted  # what stood behind the end was for nothing
        self._drafted += step.drafted
        self._accepted += accepted
        self._judged += judged
        self._forwards += step.forwards
        self._accepted_lengths.append(accepted)
        if judged > accepted:
            self._rejected_at.append(accepted)
        self._draft_ms += step.draft_ms
        self._verify_ms += step.verify_ms

    def completion(
        self,
        pair: LoadedPair,
        request: CompletionRequest,
        prompt: EncodedPrompt,
        drafter: Drafter | None,
        seed: int | None,
    ) -> Completion:
        total_ms = 1000 * self.seconds()
        return Completion(
            text="".join(self.pieces),
            token_ids=tuple(self._token_ids),
            drafted=self._drafted,
            accepted=self._accepted,
            rejected=self._judged - self._accepted,
            discarded=self._drafted - self._judged,
            accepted_lengths=tuple(self._accepted_lengths),
            rejected_at=tuple(self._rejected_at),
            target_forwards=self._forwards,
            draft_ms=self._draft_ms,
            verify_ms=self._verify_ms,
            prefill_ms=self._prefill_ms,
            ttft_ms=total_ms if self._ttft_ms is None else self._ttft_ms,
            total_ms=total_ms,
            prompt_tokens=prompt.tokens,
            reused_tokens=self.reused_tokens,
            peak_memory_mb=_peak_memory_mb(),
            stop=self.stop or "max_tokens",
            drafter="none" if drafter is None else drafter.name,
            mode="greedy" if request.sampling.greedy else "sampled",
            seed=seed,
            pair=pair.name,
            notes=tuple(self._notes),
        )


def _peak_memory_mb() -> float:
    """The GPU's peak where one is used, else the process's peak resident memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    if sys.platform == "win32":
        import psutil

        return float(psutil.Process().memory_info().peak_wset) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere
