"""Where the last tokens of a text stood in other files, and what followed them there. In memory only.

A retrieval store as in REST (He et al., 2024), searched exactly: in each block of files all places are sorted by the
tokens before them, read backwards, so the places behind a common context are one range. Small blocks are merged as in a
log-structured tree, so a file that changes costs a few times its own length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST_MATCH = 16  # tokens; what is sorted by
SHORTEST_MATCH = 2
BYTES_PER_TOKEN = 8  # its id and its place in the order
_BYTES_PER_FILE = 512  # its name and the entries for it
_LARGEST_BLOCK = 1 << 20  # tokens; merging takes 60 bytes a token for a moment
_MERGE_RESERVE = 60 * _LARGEST_BLOCK
DEFAULT_BYTES = 200_000_000

_WIDEST = 1024  # places looked at in one block on each side; dead ones among them may hide others behind them
_END = -1  # behind every file; no id

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


class Found(NamedTuple):
    """A place: how many tokens before it agree, and what follows."""

    match: int
    tokens: list[int]


class WorkspaceIndex:
    """Token sequences by name, within a bound of memory. `find` may run beside the changes; these take turns."""

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        """most_bytes: of arrays and names together, those of a merge in progress included."""
        self._room = max(most_bytes - min(_MERGE_RESERVE, most_bytes // 3), 0)
        self._blocks: tuple[_Block, ...] = ()
        self._lock = Lock()

    @property
    def tokens(self) -> int:
        """That can be found."""
        return sum(block.living for block in self._blocks)

    @property
    def files(self) -> int:
        return sum(len(block.names) for block in self._blocks)

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self._blocks)

    def update(self, files: Mapping[str, Sequence[int]]) -> bool:
        """Adds files, in place of those of the same names; one without tokens is removed. False if some had no room:
        what is there stays, and of the new ones those that fit are taken."""
        with self._lock:
            self._bury(files)
            self._make_room(sum(_cost(len(tokens)) for tokens in files.values()))
            free = self._room - self.bytes
            chosen = dict[str, Int32]()
            for name, tokens in files.items():
                size = _cost(len(tokens))
                if len(tokens) > SHORTEST_MATCH and size <= free:
                    chosen[name] = np.asarray(tokens, dtype=np.int32)
                    free -= size
            if chosen:
                self._blocks = _merged([*self._blocks, _Block.build(chosen)])
            return len(chosen) == sum(len(tokens) > SHORTEST_MATCH for tokens in files.values())

    def clear(self) -> None:
        with self._lock:
            self._blocks = ()

    def find(self, tail: Sequence[int], most: int, length: int, but: str = "") -> list[Found]:
        """Up to `most` places behind the last tokens of `tail`, the longest matches first, each with up to `length`
        tokens that follow; none in the file named `but`."""
        wanted = [int(token) for token in tail[-LONGEST_MATCH:]][::-1]
        if len(wanted) < SHORTEST_MATCH or min(wanted) < 0 or max(wanted) >= 2**31 - 1:
            return []
        searches = sorted((block.search(wanted) for block in self._blocks), key=lambda search: -search.longest)
        levels: dict[int, list[tuple[_Block, int]]] = {}
        opened, found = 0, list[Found]()
        for match in range(len(wanted), SHORTEST_MATCH - 1, -1):
            room = most - len(found)
            while opened < len(searches) and searches[opened].longest >= match and len(levels.get(match, ())) < room:
                search = searches[opened]
                opened += 1
                for depth, places in search.block.around(search, wanted, most, but).items():
                    levels.setdefault(depth, []).extend((search.block, place) for place in places)
            level = levels.get(match, [])
            chosen = [level[index] for index in _spread(0, len(level), room)]
            found += [Found(match, block.following(place, length)) for block, place in chosen]
            if len(found) == most:
                break
        return found

    def _bury(self, names: Iterable[str]) -> None:
        """Makes files not found any more; blocks that are mostly dead are built anew."""
        gone = set(names)
        for block in self._blocks:
            block.bury(gone)
        self._blocks = tuple(
            kept
            for block in self._blocks
            if (kept := block if 2 * block.living >= block.size or not block.dead else block.rebuilt()) is not None
        )

    def _make_room(self, size: int) -> None:
        """Builds blocks without their dead files, those with most of them first, until there is room for `size`."""
        for block in sorted(self._blocks, key=lambda block: block.living - block.size):
            if self.bytes + size <= self._room or not block.dead:
                return
            self._blocks = tuple(
                kept for each in self._blocks if (kept := each.rebuilt() if each is block else each) is not None
            )


class _Search(NamedTuple):
    """Where in a block's order a context would stand, and the longest match there is."""

    block: _Block
    place: int
    longest: int


@dataclass(slots=True, eq=False)
class _Block:
    """Files one behind another, each between ends; only which of them live ever changes.

    text: [n]. order: places (the index of the token that follows), sorted by the tokens before them, the nearest first.
    starts: of the files.
    """

    text: Int32
    order: Int32
    starts: Int64
    names: dict[str, int]  # those that live, and their indices
    files: list[str]
    alive: NDArray[np.bool_]

    @classmethod
    def build(cls, files: Mapping[str, Int32]) -> _Block:
        end = np.array([_END], dtype=np.int32)
        text = np.concatenate([end, *(part for tokens in files.values() for part in (tokens, end))])
        lengths = [len(tokens) + 1 for tokens in files.values()]
        starts = np.concatenate([[1], 1 + np.cumsum(lengths[:-1])]).astype(np.int64)
        order = _sorted_places(text)
        names = {name: index for index, name in enumerate(files)}
        return cls(text, order, starts, names, list(files), np.ones(len(files), dtype=np.bool_))

    @property
    def size(self) -> int:
        return len(self.text)

    @property
    def living(self) -> int:
        ends = np.append(self.starts[1:], len(self.text))
        return int((ends - self.starts - 1)[self.alive].sum())

    @property
    def dead(self) -> bool:
        return len(self.names) < len(self.files)

    @property
    def bytes(self) -> int:
        return self.size * BYTES_PER_TOKEN + len(self.files) * _BYTES_PER_FILE

    def bury(self, names: set[str]) -> None:
        for name in names & self.names.keys() if len(names) > 1 else [name for name in names if name in self.names]:
            self.alive[self.names.pop(name)] = False

    def living_files(self) -> dict[str, Int32]:
        ends = np.append(self.starts[1:], len(self.text)) - 1
        return {name: self.text[self.starts[index] : ends[index]] for name, index in self.names.items()}

    def rebuilt(self) -> _Block | None:
        files = self.living_files()
        return _Block.build(files) if files else None

    def following(self, place: int, length: int) -> list[int]:
        tokens: list[int] = self.text[place : place + length].tolist()
        return tokens[: tokens.index(_END)] if _END in tokens else tokens

    def search(self, wanted: list[int]) -> _Search:
        """wanted: the tokens before, the nearest first."""
        index = bisect_left(range(len(self.order)), wanted, key=self._before)
        neighbours = range(max(index - 1, 0), min(index + 1, len(self.order)))
        return _Search(self, index, max((_common(self._before(near), wanted) for near in neighbours), default=0))

    def around(self, search: _Search, wanted: list[int], most: int, but: str) -> dict[int, list[int]]:
        """The places with the longest matches, by match: at least `most`, if there are that many."""
        index, count, reach = search.place, len(self.order), most
        while True:
            first, last = max(index - reach, 0), min(index + reach, count)
            found = self._by_match(self._living(self.order[first:last], but), wanted)
            edges = [_common(self._before(edge), wanted) for edge in (first, last - 1)]
            # Of the longest match that goes on beyond the window.
            cut = max(match if beyond else 0 for match, beyond in zip(edges, (first, count - last), strict=True))
            known = sum(len(places) for match, places in found.items() if match >= cut)
            if cut < SHORTEST_MATCH or reach >= _WIDEST or known >= most:
                break
            reach *= 4  # files that are dead or not wanted stood in the way
        if cut >= SHORTEST_MATCH and known - len(found.get(cut, ())) < most:
            # Instead of the nearest of a level, some from all over it.
            low, high = self._range(index, wanted[:cut])
            level = self._living(self.order[_spread(low, high, _WIDEST)], but)
            spread = self._by_match(level[_spread(0, len(level), 2 * most)], wanted)
            found[cut] = spread.get(cut, found.get(cut, []))
        return found

    def _range(self, index: int, wanted: list[int]) -> tuple[int, int]:
        """The places around `index` before which all of `wanted` stands."""

        def before(place: int) -> list[int]:
            return self._before(place)[: len(wanted)]

        behind = range(index, len(self.order))
        return bisect_left(range(index), wanted, key=before), index + bisect_right(behind, wanted, key=before)

    def _by_match(self, places: Int32, wanted: Sequence[int]) -> dict[int, list[int]]:
        """The places by how many tokens before them agree."""
        if not len(places):
            return {}
        rows = np.maximum(places[:, None] - np.arange(1, len(wanted) + 1), 0)
        agree = self.text[rows] == np.asarray(wanted, dtype=np.int32)
        matches = np.where(agree.all(axis=1), len(wanted), agree.argmin(axis=1)).tolist()
        found: dict[int, list[int]] = {}
        for match, place in zip(matches, places.tolist(), strict=True):
            if match >= SHORTEST_MATCH:
                found.setdefault(match, []).append(place)
        return found

    def _before(self, index: int) -> list[int]:
        """The tokens before a place, the nearest first."""
        place = int(self.order[index])
        tokens: list[int] = self.text[max(place - LONGEST_MATCH, 0) : place].tolist()
        return tokens[::-1]

    def _living(self, places: Int32, but: str) -> Int32:
        files = np.searchsorted(self.starts, places, "right") - 1
        keep = self.alive[files]
        if but in self.names:
            keep = keep & (files != self.names[but])
        return places[keep]


def _merged(blocks: list[_Block]) -> tuple[_Block, ...]:
    """The blocks with the last made part of those before it that are not much larger."""
    while len(blocks) > 1 and blocks[-2].living <= 2 * blocks[-1].living:
        if blocks[-2].living + blocks[-1].living > _LARGEST_BLOCK:
            break
        last, before = blocks.pop(), blocks.pop()
        blocks.append(_Block.build(before.living_files() | last.living_files()))
    return tuple(blocks)


def _cost(tokens: int) -> int:
    return (tokens + 1) * BYTES_PER_TOKEN + _BYTES_PER_FILE


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens agree."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(first), len(second)))


def _spread(low: int, high: int, most: int) -> list[int]:
    """At most `most` of low..high, from all over it."""
    count = high - low
    return list(range(low, high)) if count <= most else [low + index * count // most for index in range(most)]


def _sorted_places(text: Int32) -> Int32:
    """Places with at least two tokens before them in their file, sorted by those before them.

    By prefix doubling (Karp, Miller and Rosenberg, 1972): the order by 2d tokens comes of that by d.
    """
    tokens = text.astype(np.int64) + 1
    before = np.concatenate([[0], tokens[:-1]])
    keys = before << 32 | np.concatenate([[0, 0], tokens[:-2]])
    order, depth = np.argsort(keys), SHORTEST_MATCH
    while depth < LONGEST_MATCH:
        ordered = keys[order]
        ranks = np.empty(len(text), dtype=np.int64)
        ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
        if ranks[order[-1]] == len(text) - 1:  # all differ
            break
        shifted = np.zeros(len(text), dtype=np.int64)
        shifted[depth:] = ranks[:-depth] + 1
        keys = ranks << 32 | shifted
        order = np.argsort(keys)
        depth *= 2
    useful = (text >= 0) & (before > 0)
    useful[2:] &= tokens[:-2] > 0
    useful[:2] = False
    order = order[useful[order]]
    return order.astype(np.int32)
