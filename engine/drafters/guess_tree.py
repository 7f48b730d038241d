"""Merges what several sources guess into one tree of the likeliest nodes, siblings distinct."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

from engine.drafters import Context
from engine.policy import UNLIMITED, Budget
from engine.speculation import Draft

_OF_CHAIN = ""  # the source of a chain's guesses, as if it stood alone


class Continuation(NamedTuple):
    """What followed elsewhere, and how many tokens before it agree with those here."""

    match: int
    tokens: Sequence[int]


@dataclass(slots=True, eq=False)
class Node:
    """A guessed token. confidences: of each source that guesses it, its probability behind its parent."""

    confidences: dict[str, float] = field(default_factory=dict)
    children: dict[int, Node] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """All that guess it, as one name: those that agree are calibrated together."""
        return "+".join(sorted(self.confidences)) if len(self.confidences) > 1 else next(iter(self.confidences), "")

    @property
    def confidence(self) -> float:
        """As if the sources erred independently; what they really do, the calibration learns."""
        wrong = 1.0
        for confidence in self.confidences.values():
            wrong *= 1 - confidence
        return 1 - wrong

    def child(self, token: int) -> Node:
        found = self.children.get(token)
        if found is None:
            found = self.children[token] = Node()
        return found


class GuessTree:
    """Collects guesses and gives out the likeliest as a draft of certain guesses."""

    def __init__(self) -> None:
        self.root = Node()

    def add(self, found: Iterable[Continuation], source: str, at: Node | None = None) -> None:
        """Continuations behind `at` (the root), the longest matches first.

        As in prediction by partial matching (Cleary and Witten, 1984): the places with the longest match share what
        `trust` gives to it, those with the next the same part of what is left, and so on.
        """
        start = self.root if at is None else at
        weights: dict[int, float] = {id(start): 1.0}
        behind = list[tuple[Node, Node]]()  # each new node and its parent
        for weight, (match, tokens) in _shares(found):
            node = start
            for token in tokens:
                child = node.child(token)
                before = weights.get(id(child))
                if before is None:
                    weights[id(child)] = weight
                    behind.append((child, node))
                else:
                    weights[id(child)] = before + weight
                node, match = child, match + 1
                weight *= trust(match)
        for node, parent in behind:
            confidence = min(weights[id(node)] / weights[id(parent)], 1.0)
            node.confidences[source] = max(node.confidences.get(source, 0.0), confidence)

    def best(self, limit: int, budget: Budget = UNLIMITED, forwards: int = 0, chain: Draft | None = None) -> Draft:
        """The likeliest `limit` nodes, parents before children, as many as the budget finds worth their place.

        No node is likelier than its parent, so the likeliest always form a tree. Those of `chain` (a path of the tree)
        come first and stay in any case, as its drafter judges them.
        """
        tokens, parents, confidences, sources = list[int](), list[int](), list[float](), list[str]()
        reaches = list[float]()
        order = 0  # breaks ties by first come, and keeps nodes from being compared
        heap: list[tuple[float, int, int, int, float, str, Node]] = []

        def push(parent: int, reach: float, node: Node, but: int | None = None) -> None:
            nonlocal order
            for token, child in node.children.items():
                if token == but:
                    continue
                confidence, source = child.confidence, child.source
                probability = budget.acceptance(confidence, source)
                heapq.heappush(heap, (-reach * probability, order, parent, token, confidence, source, child))
                order += 1

        node, reach = self.root, 1.0
        for place, (token, confidence) in enumerate(zip(chain.tokens, chain.confidences, strict=True) if chain else ()):
            push(place - 1, reach, node, but=token)
            tokens.append(token)
            parents.append(place - 1)
            confidences.append(confidence)
            sources.append(_OF_CHAIN)
            node, reach = node.children[token], reach * budget.acceptance(confidence, _OF_CHAIN)
        fixed = len(tokens)
        push(fixed - 1, reach, node)
        while heap and len(tokens) < limit:
            negative, _, parent, token, confidence, source, node = heapq.heappop(heap)
            tokens.append(token)
            parents.append(parent)
            confidences.append(confidence)
            sources.append(source)
            reaches.append(-negative)
            push(len(tokens) - 1, -negative, node)
        size = fixed + budget.fits(reaches, fixed)
        draft = Draft(tuple(tokens), tuple(parents), None, tuple(confidences), forwards, sources=tuple(sources))
        return draft.first(size)


class Finder(Protocol):
    """A text that is looked into."""

    name: str

    def continuations(self, context: Context, length: int, ahead: Sequence[int] = ()) -> list[Continuation]:
        """What followed the last tokens there, the longest matches first; `ahead` are guesses to take as said."""
        ...


def likeliest(finder: Finder, context: Context, limit: int) -> Draft:
    """Of what it finds, the tree of the likeliest guesses."""
    tree = GuessTree()
    tree.add(finder.continuations(context, limit), finder.name)
    return tree.best(limit, context.budget)


@cache
def trust(match: int) -> float:
    """The probability that the places with the longest match, of that many tokens, know the next one.

    A rough value; it orders the guesses, and a wrong one costs speed only.
    """
    return min(1 - 0.75**match, 0.97)


def _shares(found: Iterable[Continuation]) -> list[tuple[float, Continuation]]:
    """Each with the probability of its first token."""
    levels: dict[int, list[Continuation]] = {}
    for continuation in found:
        levels.setdefault(continuation.match, []).append(continuation)
    shares, left = list[tuple[float, Continuation]](), 1.0
    for match, level in sorted(levels.items(), reverse=True):
        given = left * trust(match)
        shares += [(given / len(level), continuation) for continuation in level]
        left -= given
    return shares
