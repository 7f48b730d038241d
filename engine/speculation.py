"""Drafts, verdicts and every acceptance rule: what makes the output follow the target's law whatever was guessed.

Sampled guesses: rejection sampling of Leviathan et al. (2023) and Chen et al. (2023); several sampled children of one
node in turn, each on the residual of the one before: SpecInfer's multi-step rule (Miao et al., 2024). Certain guesses
(any deterministic function of the context): draw y from the target's law and descend if y was guessed. A mixed node
judges its sampled children first and its certain ones on what the residual then is; every step maps the law it is
given to itself, so the whole does. Greedy is the certain rule with one-hot rows.

The shape of a draft and what it guesses must never depend on this cycle's p or on the numbers that verify it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from engine.judging import ask
from engine.on_device import Later, is_near
from engine.sampling import Noise, draw

ROOT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A tree of guesses for the next tokens, in topological order; a chain is a tree.

    tokens: N ids; those that a device guessed are fetched when they are looked at (`engine.on_device`). parents: N
    indices, parents[i] < i; ROOT is the last committed token.
    probs: [N, vocab] float32, the exact law each guess was drawn from; None if the guesses were certain. A row that
    sums to 0 marks one certain guess among sampled ones.
    confidences: of each guess, what its drafter believes of it, 0 to 1, if what stands before it comes true; or none.
    forwards: of the draft model, that it took.
    passed_over: the confidence of a guess behind the last one that was not worth its place.
    sources: of each guess, the name of what guessed it; or none.
    """

    tokens: Sequence[int] = ()
    parents: tuple[int, ...] = ()
    probs: Tensor | None = None
    confidences: Sequence[float] = ()
    forwards: int = 0
    passed_over: float | None = None
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.tokens):
            raise ValueError(f"a draft of {len(self.tokens)} tokens has {len(self.parents)} parents")
        if any(not ROOT <= parent < index for index, parent in enumerate(self.parents)):
            raise ValueError("a draft's parents must come before their children")
        if self.probs is not None and len(self.probs) != len(self.tokens):
            raise ValueError(f"a draft of {len(self.tokens)} tokens has {len(self.probs)} rows of probabilities")
        if self.confidences and len(self.confidences) != len(self.tokens):
            raise ValueError(f"a draft of {len(self.tokens)} tokens has {len(self.confidences)} confidences")
        if self.sources and len(self.sources) != len(self.tokens):
            raise ValueError(f"a draft of {len(self.tokens)} tokens has {len(self.sources)} sources")

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int],
        probs: Tensor | None = None,
        confidences: Sequence[float] = (),
        forwards: int = 0,
        passed_over: float | None = None,
    ) -> Draft:
        """Each guess follows the one before."""
        parents = range(ROOT, len(tokens) - 1)
        return cls(tuple(tokens), tuple(parents), probs, tuple(confidences), forwards, passed_over)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(ROOT, len(self.tokens) - 1))

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, limit: int) -> Draft:
        """The first `limit` guesses. Lossless: the limit does not look at what was guessed."""
        if limit >= len(self):
            return self
        probs = None if self.probs is None else self.probs[:limit]
        confidences, sources = self.confidences[:limit], self.sources[:limit]
        return Draft(self.tokens[:limit], self.parents[:limit], probs, confidences, self.forwards, sources=sources)

    def with_probs(self, probs: Tensor) -> Draft:
        """The same guesses, drawn from these laws."""
        return replace(self, probs=probs)

    def spine(self) -> Draft:
        """The chain of first children. Lossless: which child is first does not depend on p or on the noise."""
        path, node = list[int](), ROOT
        while children := self.children(node):
            node = children[0]
            path.append(node)
        return Draft(
            tuple(self.tokens[node] for node in path),
            tuple(range(ROOT, len(path) - 1)),
            None if self.probs is None else self.probs[path],
            tuple(self.confidences[node] for node in path) if self.confidences else (),
            self.forwards,
            sources=tuple(self.sources[node] for node in path) if self.sources else (),
        )

    def children(self, node: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == node]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target made of a draft: the guesses to emit, in order, and the token after them."""

    path: tuple[int, ...]  # indices into the draft, 0..N of them
    next_token: int
    judged: int  # guesses looked at, accepted or not; the others were discarded unseen


def verify(p: Tensor, draft: Draft, noise: Noise, position: int) -> Verdict:
    """Walks the draft from its root along accepted guesses and draws the token that follows the last of them.

    p: [N+1, vocab], the target's warped law after the last committed token (row 0) and after each guess (row i+1).
    position: index of the first guessed token in the completion, which keys the noise.
    A guess outside the vocabulary has probability 0: it is rejected and its q still counts, so even that is lossless.
    """
    judge = _Answered(p, draft, noise, position) if _can_ask(p, draft) else _OneByOne(p, draft, noise, position)
    node, path, judged = ROOT, list[int](), 0
    while True:
        certain, sampled = judge.split(node)
        accepted, token, seen = judge.judge(node, sampled, len(path))
        judged += seen
        if accepted is None:
            guesses = {draft.tokens[child]: child for child in reversed(certain)}  # of equal guesses the first counts
            judged += len(certain)
            accepted = guesses.get(token)
            if accepted is None:
                return Verdict(tuple(path), token, judged)
        path.append(accepted)
        node = accepted


class _OneByOne:
    """Looks only at the laws of nodes that are reached."""

    def __init__(self, p: Tensor, draft: Draft, noise: Noise, position: int) -> None:
        if not is_near(p) and not bool(p.sum().isfinite()):  # see `warp`
            raise FloatingPointError("the model returned logits that are not finite")
        self._draft = draft
        self._given = p, draft, noise, position

    def split(self, node: int) -> tuple[list[int], list[int]]:
        """A node's (certain, sampled) children."""
        children, probs = self._draft.children(node), self._draft.probs
        if probs is None:
            return children, []
        masses = {child: float(probs[child].sum()) for child in children}
        return [child for child in children if not masses[child]], [child for child in children if masses[child]]

    def judge(self, node: int, sampled: list[int], depth: int) -> tuple[int | None, int, int]:
        """The sampled child that is accepted, else the token that is drawn instead; and how many were tried."""
        p, draft, noise, position = self._given
        accepted, law, seen = _judge_sampled(p[node + 1], draft, sampled, noise, position + depth)
        if accepted is not None:
            return accepted, draft.tokens[accepted], seen
        token = draw(law, noise.at(position + depth).target)
        return None, token, seen


class _Answered:
    """Asks for all at once (`engine.judging`); a node has one sampled child at the most."""

    def __init__(self, p: Tensor, draft: Draft, noise: Noise, position: int) -> None:
        self._draft = draft
        self._answers = ask(p, draft.tokens, draft.parents, draft.probs, noise, position)

    def split(self, node: int) -> tuple[list[int], list[int]]:
        children, sampled = self._draft.children(node), self._answers.sampled
        return [child for child in children if not sampled[child]], [child for child in children if sampled[child]]

    def judge(self, node: int, sampled: list[int], depth: int) -> tuple[int | None, int, int]:
        accepted = next((child for child in sampled if self._answers.accepted[child]), None)
        return accepted, self._answers.drawn[node + 1], len(sampled)


def _can_ask(p: Tensor, draft: Draft) -> bool:
    """Whether asking for all at once is possible, and better: not where looking costs nothing, and not in a tree with
    laws, for which of its guesses have one is known to the device only."""
    away = not is_near(p) or isinstance(draft.tokens, Later)
    return away and (draft.probs is None or draft.is_chain)


def _judge_sampled(
    law: Tensor, draft: Draft, sampled: list[int], noise: Noise, position: int
) -> tuple[int | None, Tensor, int]:
    """Tries a node's sampled children in the order drawn: (the accepted one, the law that is left, how many tried)."""
    for rank, child in enumerate(sampled):
        assert draft.probs is not None
        q, token = draft.probs[child], draft.tokens[child]
        known = 0 <= token < len(law)
        # u < p/q, never ≤: u can be exactly 0, and a token of probability 0 must not pass (pytorch#16706).
        if known and noise.at(position, rank).accept * float(q[token]) < float(law[token]):
            return child, law, rank + 1
        law = residual(law, q)
    return None, law, len(sampled)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(0, p - q)): the law after a guess from q was rejected. [vocab].

    p = q leaves no mass; a rejection then has probability 0 but for rounding, and p itself is the right law.
    """
    left = (p - q).clamp(min=0)
    mass = left.sum()
    return left / mass if bool(mass > 0) else p
