"""Rows of keys and values of documents that are not in the models' buffers just now, within a budget of memory.

A radix tree over tokens, as in SGLang's RadixAttention (Zheng et al., 2024): documents that begin alike share what
they share, and the leaf that was used least recently goes first. Rows are copied out of the runner's buffer and back
into it, and the buffer stays where it is: 640 tokens of the embedded target take 6 ms out and under 1 ms in, and 350
to compute (`python -m engine.bench.pieces`).
"""

from __future__ import annotations

import heapq
import itertools
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.runners import Rows


@dataclass(slots=True, eq=False)
class _Node:
    """A run of tokens and their rows, behind those of its ancestors. No two children begin with the same token."""

    tokens: list[int]
    rows: Rows
    parent: _Node | None
    used: int  # the store's clock
    children: dict[int, _Node] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in self.rows)


class PrefixStore:
    """What all shelves hold together is at most `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes = 0
        self._roots: list[_Node] = []
        self._clock = itertools.count(1)

    def shelf(self) -> Shelf:
        """A place for one model's rows."""
        root = _Node([], (), None, 0)
        self._roots.append(root)
        return Shelf(self, root)

    def tick(self) -> int:
        return next(self._clock)

    def make_room(self) -> None:
        """Evicts leaves, the least recently used first, until the budget is kept."""
        leaves = [(node.used, id(node), node) for root in self._roots for node in _leaves(root) if node is not root]
        heapq.heapify(leaves)
        while self.bytes > self.budget and leaves:
            _, _, node = heapq.heappop(leaves)
            assert node.parent is not None
            self.bytes -= node.bytes
            del node.parent.children[node.tokens[0]]
            if not node.parent.children and node.parent.parent is not None:
                heapq.heappush(leaves, (node.parent.used, id(node.parent), node.parent))

    def shrink(self) -> None:
        """Memory is short: gives all of it back, and takes half as much from now on."""
        self.budget //= 2
        for root in self._roots:
            root.children.clear()
        self.bytes = 0


class Shelf:
    """One model's part of a store: rows by the tokens before and at them."""

    def __init__(self, store: PrefixStore, root: _Node) -> None:
        self._store = store
        self._root = root

    def shrink(self) -> None:
        self._store.shrink()

    def match(self, tokens: Sequence[int]) -> int:
        """How many leading tokens have their rows here."""
        return self._walk(tokens)[1]

    def rows(self, tokens: Sequence[int], start: int, end: int) -> list[tuple[int, Rows]]:
        """(place, rows) of pieces that are the rows from `start` to `end` of these tokens. end: at most `match`."""
        path, place, found, now = self._walk(tokens)[0], 0, list[tuple[int, Rows]](), self._store.tick()
        for node in path:
            node.used = now
            first, last = max(start - place, 0), min(end - place, len(node.tokens))
            if first < last:
                found.append((place + first, _cut(node.rows, first, last)))
            place += len(node.tokens)
        return found

    def put(self, tokens: Sequence[int], read: Callable[[int, int], Rows]) -> None:
        """Keeps a copy of the rows of these tokens. read: the rows from one place to another; asked for what is not
        here already."""
        path, known = self._walk(tokens)
        node = path[-1] if path else self._root
        behind = known - sum(len(each.tokens) for each in path[:-1])  # of the last node's tokens, those that agree
        if path and behind < len(node.tokens):
            if known == len(tokens):
                return
            node = self._split(node, behind)
        if known < len(tokens):
            child = _Node(list(tokens[known:]), _copied(read(known, len(tokens))), node, self._store.tick())
            node.children[child.tokens[0]] = child
            self._store.bytes += child.bytes
            self._store.make_room()

    def clear(self) -> None:
        self._store.bytes -= sum(node.bytes for node in _nodes(self._root))
        self._root.children.clear()

    def _walk(self, tokens: Sequence[int]) -> tuple[list[_Node], int]:
        """The nodes along the tokens, the last one perhaps in part, and how many tokens they agree with."""
        node, path, place = self._root, list[_Node](), 0
        while place < len(tokens) and (child := node.children.get(tokens[place])) is not None:
            path.append(child)
            agreed = common_prefix(child.tokens, tokens[place : place + len(child.tokens)])
            place += agreed
            if agreed < len(child.tokens):
                break
            node = child
        return path, place

    def _split(self, node: _Node, at: int) -> _Node:
        """Makes two nodes of one, one behind the other; returns the first. Copies: a view would keep all alive."""
        assert node.parent is not None
        front, back = _copied(_cut(node.rows, 0, at)), _copied(_cut(node.rows, at, len(node.tokens)))
        first = _Node(node.tokens[:at], front, node.parent, node.used)
        node.parent.children[first.tokens[0]] = first
        node.rows, node.tokens = back, node.tokens[at:]
        node.parent = first
        first.children[node.tokens[0]] = node
        return first


def common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    pairs = zip(ours, theirs, strict=False)
    shorter = min(len(ours), len(theirs))
    return next((place for place, (one, other) in enumerate(pairs) if one != other), shorter)


def _cut(rows: Rows, first: int, last: int) -> Rows:
    return tuple(part[..., first:last, :] for part in rows)


def _copied(rows: Rows) -> Rows:
    return tuple(part.clone() if part.is_cuda else _paged(part) for part in rows)


def _paged(part: Tensor) -> Tensor:
    """A copy in pages of its own, which go back when it goes. In the heap, rows of many sizes that come and go leave
    holes, and the process grows beyond the budget."""
    pages = torch.frombuffer(mmap.mmap(-1, max(part.nbytes, 1)), dtype=part.dtype, count=part.numel())
    return pages.view(part.shape).copy_(part)


def _nodes(node: _Node) -> list[_Node]:
    return [node, *(below for child in node.children.values() for below in _nodes(child))]


def _leaves(root: _Node) -> list[_Node]:
    return [node for node in _nodes(root) if not node.children]
