"""Guesses from the target's own thoughts ahead: lookahead decoding (Fu et al., 2024).

A window of columns stands ahead of the text. Each is a short chain of tokens, the trace of a Jacobi iteration: the
first of it belongs behind those of the columns before, and the target's token after its last goes to its end. So the
column is an n-gram that the target would say somewhere ahead, and a pool keeps them by their first token. Here the
window is a part of the draft like any other: a column's first tokens are a branch with the rest of each beside it, so
that the forward that verifies also thinks ahead, and what of the window comes true counts as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from torch import Tensor

from engine.drafters import Context
from engine.speculation import ROOT, Draft

_TRACE = 2  # tokens of a column: n-grams of three
_KEYS = 4096  # first tokens in the pool; the one not used for longest goes
_EACH = 8  # n-grams of one first token, likewise


class NGramPool:
    """What the target was seen to say after a token, the latest last; it may outlive a completion."""

    def __init__(self) -> None:
        self._after: OrderedDict[int, OrderedDict[tuple[int, ...], None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._after.values()))

    def add(self, token: int, following: tuple[int, ...]) -> None:
        known = self._after.setdefault(token, OrderedDict())
        self._after.move_to_end(token)
        known[following] = None
        known.move_to_end(following)
        if len(known) > _EACH:
            known.popitem(last=False)
        if len(self._after) > _KEYS:
            self._after.popitem(last=False)

    def after(self, token: int) -> list[tuple[int, ...]]:
        """The latest first."""
        if token not in self._after:
            return []
        self._after.move_to_end(token)
        return list(reversed(self._after[token]))


class LookaheadDrafter:
    """Half of a draft verifies n-grams of the pool, chained one behind another; the other half is the window."""

    name = "lookahead"

    def __init__(self, pool: NGramPool) -> None:
        self._pool = pool
        self._columns: list[tuple[int, ...]] = []
        self._seeds: Iterator[int] = iter(())  # tokens for new columns
        self._draft = Draft()
        self._ends: list[int] = []  # the node of each column's last token, of those that are in the draft

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        self._columns, self._draft = [], Draft()
        self._seeds = _scattered(tuple(prompt))
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        tree = _Tree(limit)
        self._look(tree, context.tokens[-1], limit // 2, ROOT)
        self._ends, spine = [], ROOT
        for place in range(limit):
            if place == len(self._columns):
                self._columns.append(tuple(next(self._seeds) for _ in range(_TRACE)))
            nodes = tree.add(spine, self._columns[place])
            if len(nodes) < _TRACE:
                break
            spine = nodes[0]
            self._ends.append(nodes[-1])
        self._draft = Draft(tuple(tree.tokens), tuple(tree.parents))
        return self._draft

    def saw(self, context: Context, draft: Draft, logits: Tensor, path: Sequence[int]) -> None:
        """Puts the target's next token to the end of each column, and moves the window behind what was emitted."""
        if draft is not self._draft:  # it was cut, so that nodes may be missing
            return
        new = logits[[node + 1 for node in self._ends]].argmax(dim=-1).tolist() if self._ends else []
        for place, token in enumerate(new):
            first, *rest = (*self._columns[place], token)
            self._pool.add(first, tuple(rest))
            self._columns[place] = tuple(rest)
        del self._columns[: len(path)]  # a column's first token is gone, which is one place already

    def _look(self, tree: _Tree, token: int, limit: int, at: int) -> None:
        """What the pool knows behind a node, breadth first until the tree has `limit` nodes."""
        front = [(at, token)]
        while front and len(tree.tokens) < limit:
            node, last = front.pop(0)
            for following in self._pool.after(last):
                if len(tree.tokens) + len(following) > limit:
                    return
                nodes = tree.add(node, following)
                front.append((nodes[-1], following[-1]))


class _Tree:
    """Nodes of a draft in the order they came; equal siblings are one."""

    def __init__(self, limit: int) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._limit = limit
        self._known: dict[tuple[int, int], int] = {}

    def add(self, parent: int, tokens: Sequence[int]) -> list[int]:
        """The nodes of a chain behind `parent`, as far as there is room."""
        nodes = list[int]()
        for token in tokens:
            if (parent, token) not in self._known:
                if len(self.tokens) == self._limit:
                    break
                self._known[parent, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(parent)
            parent = self._known[parent, token]
            nodes.append(parent)
        return nodes


def _scattered(prompt: Sequence[int]) -> Iterator[int]:
    """Tokens of the prompt without end, the same for the same prompt: a Jacobi iteration may begin with any."""
    place = 0
    while True:
        place = (place + 7919) % len(prompt)  # a prime, so that it visits all places of nearly any prompt
        yield prompt[place]
