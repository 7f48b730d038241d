"""Merges guessed continuations into one tree of the likeliest nodes, siblings distinct."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.policy import Budget
from engine.speculation import ROOT, Draft


@dataclass(slots=True)
class _Node:
    weight: float = 0.0
    children: dict[int, _Node] = field(default_factory=dict)


class GuessTree:
    """Collects continuations with weights and gives out the `limit` likeliest nodes as a draft of certain guesses.

    A continuation's weight is the estimated probability of its first token; each further token keeps `decay` of it.
    Sources that agree add up. No node can be likelier than its parent, so the best nodes always form a tree.
    """

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, tokens: Sequence[int], weight: float, decay: float) -> None:
        """tokens: a continuation of the context. 0 < weight, decay ≤ 1."""
        node = self._root
        for token in tokens:
            node = node.children.setdefault(token, _Node())
            node.weight += weight
            weight *= decay

    def best(self, limit: int, budget: Budget | None = None) -> Draft:
        """The `limit` heaviest nodes, parents before children, as far as the budget keeps them."""
        tokens, parents, confidences, reaches = list[int](), list[int](), list[float](), list[float]()
        weights = list[float]()
        order = 0  # breaks ties by first come, and keeps nodes from being compared
        heap: list[tuple[float, int, int, int, _Node]] = []

        def push(parent: int, ceiling: float, children: dict[int, _Node]) -> None:
            nonlocal order
            for token, child in children.items():
                heapq.heappush(heap, (-min(child.weight, ceiling), order, parent, token, child))
                order += 1

        push(ROOT, 1.0, self._root.children)
        while heap and len(tokens) < limit:
            negative, _, parent, token, node = heapq.heappop(heap)
            # Of the parent's weight, the part that is the child's.
            confidence = -negative / weights[parent] if parent != ROOT else -negative
            reach = reaches[parent] if parent != ROOT else 1.0
            if budget is not None:
                reach *= budget.acceptance(confidence)
                if not budget.keeps(reach, len(tokens)):
                    continue
            tokens.append(token)
            parents.append(parent)
            confidences.append(confidence)
            reaches.append(reach)
            weights.append(-negative)
            push(len(tokens) - 1, -negative, node.children)
        return Draft(tuple(tokens), tuple(parents), confidences=tuple(confidences))
