"""The draft/verify cycle: one forward of the target judges what a drafter guessed; plain decoding has no drafter."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from engine.costs import Costs
from engine.drafters import Context, Drafter, Watcher
from engine.model import CachedModel
from engine.on_device import Later
from engine.policy import UNLIMITED, DraftPolicy
from engine.request import Sampling
from engine.sampling import Noise, warp
from engine.speculation import Draft, verify

log = logging.getLogger(__name__)

# Tokens of a prompt that are computed at once: 256 are 15 % faster than 128, 640 slower again (on two AVX2 cores). The
# runner pauses within, about as often as a cycle takes.
PREFILL_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One cycle: the tokens it emitted (accepted guesses and the target's own), and what became of the draft.

    A step without a forward (`forwards` 0) is a pause in the prefill. `fault` says why a drafter was left out.
    """

    tokens: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    judged: int = 0
    forwards: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    fault: str | None = None


class SpeculativeDecoder:
    """Decodes with the target's law: greedy or sampled tokens equal in law to plain decoding, fewer forwards.

    The stream ends after `limit` tokens, after an end token (which is the last one emitted) or at the target's
    window. Leaving the iterator ends the work within one cycle; what was computed stays in the models' caches.
    draft_length is the most guesses a cycle; the policy makes it fewer.
    """

    def __init__(
        self,
        target: CachedModel,
        drafter: Drafter | None,
        sampling: Sampling,
        noise: Noise,
        end_tokens: frozenset[int],
        draft_length: int,
        policy: DraftPolicy | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._sampling = sampling
        self._noise = noise
        self._end_tokens = end_tokens
        self._draft_length = draft_length
        self._watcher = watcher
        self._policy = policy if drafter is not None else None
        if self._policy is not None:
            self._policy.begin()

    def decode(self, prompt: Sequence[int], limit: int) -> Iterator[Step]:
        """prompt: 1..window ids. Yields at least one token in total unless the prompt fills the window."""
        tokens = list(prompt)
        yield from self._prefill(prompt)
        end = min(len(prompt) + limit, self._target.window)
        while len(tokens) < end:
            step = self._cycle(tokens, len(prompt), room=end - len(tokens))
            tokens += step.tokens
            yield step
            if step.tokens[-1] in self._end_tokens:
                return

    def _prefill(self, prompt: Sequence[int]) -> Iterator[Step]:
        try:
            for _ in self._drafter.prepare(prompt) if self._drafter else ():
                yield Step()
        except Exception as error:
            yield Step(fault=self._drop_drafter(error))
        for _ in self._target.prefill(prompt, PREFILL_CHUNK):
            yield Step()

    def _cycle(self, tokens: list[int], prompt_length: int, room: int) -> Step:
        started = time.perf_counter()
        context = Context(tokens, prompt_length, self._sampling, self._noise, self._policy or UNLIMITED)
        draft, fault = self._propose(context, min(self._draft_length, room - 1))
        drafted = time.perf_counter()
        logits = self._target.logits(tokens, guesses=self._embeddable(draft))
        verdict = verify(warp(logits, self._sampling), draft, self._noise, context.position)
        emitted = self._until_end([*(draft.tokens[node] for node in verdict.path), verdict.next_token])
        accepted = min(len(verdict.path), len(emitted))
        if any(math.isnan(confidence) for confidence in draft.confidences):
            fault, draft = self._drop_drafter(FloatingPointError()), replace(draft, confidences=())
        fault = self._tell(context, draft, logits, verdict.path) or fault
        judged = time.perf_counter()
        draft_ms, verify_ms = 1000 * (drafted - started), 1000 * (judged - drafted)
        if self._policy is not None:
            self._policy.learn(draft, verdict.path, len(emitted))
            if context.position:  # the first forward carries the rest of the prompt, too
                self._learn_costs(self._policy.costs, draft, draft_ms, verify_ms)
        return Step(
            tokens=tuple(emitted),
            drafted=len(draft),
            accepted=accepted,
            judged=verdict.judged if accepted == len(verdict.path) else accepted,
            forwards=1,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            fault=fault,
        )

    @staticmethod
    def _learn_costs(costs: Costs, draft: Draft, draft_ms: float, verify_ms: float) -> None:
        if isinstance(draft.tokens, Later) and draft.forwards:
            costs.took_together(len(draft) + 1, draft_ms + verify_ms, draft.forwards)
        else:
            costs.took(len(draft) + 1, verify_ms, draft.forwards, draft_ms)

    def _tell(self, context: Context, draft: Draft, logits: Tensor, path: Sequence[int]) -> str | None:
        """Lets those hear of the laws that want to; a drafter that fails in it is left out."""
        if self._watcher is not None:
            self._watcher.saw(context, draft, logits, path)
        try:
            if isinstance(self._drafter, Watcher):
                self._drafter.saw(context, draft, logits, path)
        except Exception as error:
            return self._drop_drafter(error)
        return None

    def _embeddable(self, draft: Draft) -> Draft:
        """The draft as the target is given it: an id outside the vocabulary has no embedding; `verify` rejects it."""
        if isinstance(draft.tokens, Later) and draft.tokens.guessed.below <= self._target.vocab:
            return draft  # without looking
        known = (guess if 0 <= guess < self._target.vocab else 0 for guess in draft.tokens)
        return Draft(tuple(known), draft.parents)

    def _until_end(self, tokens: list[int]) -> list[int]:
        for index, token in enumerate(tokens):
            if token in self._end_tokens:
                return tokens[: index + 1]
        return tokens

    def _propose(self, context: Context, limit: int) -> tuple[Draft, str | None]:
        """The drafter's guess, made safe: at most `limit` long, its laws finite; none at all if the drafter fails."""
        if self._drafter is None or limit < 1:
            return Draft(), None
        try:
            draft = self._drafter.propose(context, limit).first(limit)
            if not self._target.runner.takes_trees:
                draft = draft.spine()
            # Those of a chain on a device are made by `warp`; asking for them would be waiting. See `_cycle`.
            away = isinstance(draft.tokens, Later)
            if draft.probs is not None and not away and not _are_laws(draft.probs, self._target.vocab):
                raise ValueError("its probabilities are not laws over the vocabulary")
            return draft, None
        except Exception as error:
            return Draft(), self._drop_drafter(error)

    def _drop_drafter(self, error: Exception) -> str:
        """A drafter that failed once in a completion is left out of the rest of it."""
        name = self._drafter.name if self._drafter else "none"
        self._drafter = None
        fault = f"drafter {name} failed and was left out ({type(error).__name__})"  # its message might quote the text
        log.warning(fault)
        log.debug(fault, exc_info=error)
        return fault


def _are_laws(probs: Tensor, vocab: int) -> bool:
    """Whether each row is a law over the vocabulary, or all 0 (a certain guess)."""
    if probs.dim() != 2 or probs.shape[-1] != vocab or not bool((probs >= 0).all()):  # NaN ≥ 0 is false
        return False
    mass = probs.sum(dim=-1)
    return bool(((mass == 0) | ((mass - 1).abs() < 1e-3)).all())
