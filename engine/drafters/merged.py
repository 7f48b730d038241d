"""One tree from every source: what stands at hand, in the workspace, and what the draft model thinks.

Free sources first; then the draft model is asked where the next token is most in doubt, and what it finds likely
joins the tree, with what the free sources know behind it. Under sampling the model's guesses are a chain of draws from
its laws, which `verify` judges before the certain guesses beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from engine.drafters import Context
from engine.drafters.guess_tree import GuessTree, Node
from engine.drafters.lookup import LookupDrafter
from engine.drafters.small_model import SmallModelDrafter
from engine.drafters.workspace import WorkspaceDrafter
from engine.policy import Budget
from engine.speculation import Draft

_FORWARDS = 6  # of the draft model in one cycle
_BRANCHES = 3  # of the likeliest tokens of one law
_LEAST = 0.04  # probability of a branch
_DOUBT = 0.1  # probability of coming to a place and finding no right guess there that is worth a forward


class _Place(NamedTuple):
    """A node that the model has not continued yet. doubt: the probability to come there and be left without a guess."""

    doubt: float
    node: Node
    path: tuple[int, ...]


class MergedDrafter:
    """lookup, and the workspace and the model where there are any."""

    name = "merged"

    def __init__(
        self, lookup: LookupDrafter, workspace: WorkspaceDrafter | None, model: SmallModelDrafter | None
    ) -> None:
        self._free: list[LookupDrafter | WorkspaceDrafter] = [lookup] if workspace is None else [lookup, workspace]
        self._model = model

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        for source in (*self._free, *([self._model] if self._model is not None else ())):
            yield from source.prepare(prompt)

    def propose(self, context: Context, limit: int) -> Draft:
        tree = GuessTree()
        self._look(tree, context, limit, (), tree.root)
        if self._model is None:
            return tree.best(limit, context.budget)
        if context.sampling.greedy and not self._model.draws_away:
            forwards = self._think(self._model, tree, context, limit)
            return tree.best(limit, context.budget, forwards)
        chain = self._model.propose(context, min(limit, _FORWARDS))
        if self._model.draws_away and chain and not tree.root.children:
            return chain  # what might be found behind it is not worth waiting for it
        return self._around(chain, tree, context, limit)

    def _look(self, tree: GuessTree, context: Context, limit: int, path: Sequence[int], at: Node) -> None:
        for source in self._free:
            tree.add(source.continuations(context, limit - len(path), path), source.name, at)

    def _think(self, model: SmallModelDrafter, tree: GuessTree, context: Context, limit: int) -> int:
        """Lets the model continue the tree; returns its forwards."""
        asked, forwards = set[int](), 0
        while forwards < min(limit, _FORWARDS):
            doubt, node, path = max(_places(tree.root, asked, context.budget, limit), key=lambda place: place.doubt)
            if doubt < _DOUBT or not context.budget.wants(doubt, forwards):
                break
            law = model.law(context, path)
            if law is None:
                break
            asked.add(id(node))
            forwards += 1
            likeliest = law.topk(min(_BRANCHES, len(law)))
            for rank, (probability, token) in enumerate(
                zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
            ):
                if rank == 0 or probability >= _LEAST:
                    known = token in node.children
                    child = node.child(token)
                    child.confidences[model.name] = probability
                    if rank == 0 and not known and len(path) + 1 < limit:
                        self._look(tree, context, limit, (*path, token), child)
        return forwards

    def _around(self, chain: Draft, tree: GuessTree, context: Context, limit: int) -> Draft:
        """The chain, all of it whatever it says, and certain guesses beside and behind it."""
        node, path = tree.root, list[int]()
        for token in chain.tokens:
            node = node.child(token)
            path.append(token)
        if chain.tokens and len(path) < limit:
            self._look(tree, context, limit, path, node)
        draft = tree.best(limit, context.budget, chain.forwards, chain)
        if context.sampling.greedy:
            return draft
        if chain.probs is None or len(draft) == len(chain):
            return chain
        certain = torch.zeros(len(draft) - len(chain), chain.probs.shape[-1], device=chain.probs.device)
        return draft.with_probs(torch.cat([chain.probs, certain.to(chain.probs.dtype)]))


def _places(
    node: Node, asked: set[int], budget: Budget, depth: int, reach: float = 1.0, path: tuple[int, ...] = ()
) -> Iterator[_Place]:
    """All nodes, with no doubt about those that the model was asked about; down to less than `depth`."""
    covered = 0.0
    for token, child in node.children.items():
        probability = budget.acceptance(child.confidence, child.source)
        covered += probability
        if reach * probability >= _DOUBT and len(path) + 1 < depth:
            yield from _places(child, asked, budget, depth, reach * probability, (*path, token))
    yield _Place(0.0 if id(node) in asked else reach * max(1 - covered, 0.0), node, path)
