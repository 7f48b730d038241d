"""The workspace index against a search of every place, and within its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import workspace_index
from engine.drafters import Context
from engine.drafters.surroundings import Markers
from engine.drafters.workspace import WorkspaceDrafter
from engine.request import GREEDY
from engine.sampling import Noise
from engine.workspace_index import LONGEST_MATCH, SHORTEST_MATCH, WorkspaceIndex

# Few different tokens, so that there are long and many matches; large ones, so that nothing assumes 16 bits.
TOKENS = st.lists(st.sampled_from([0, 1, 7, 70_000, 2**31 - 2]), max_size=60)
CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), TOKENS), max_size=14)


def every_place(files: dict[str, list[int]], tail: list[int], but: str) -> list[tuple[int, list[int]]]:
    """(match, what follows) of each place behind two tokens or more of the tail."""
    found = []
    for name, tokens in files.items():
        for place in range(len(tokens)):
            match = 0
            while match < min(place, len(tail), LONGEST_MATCH) and tokens[place - 1 - match] == tail[-1 - match]:
                match += 1
            if match >= SHORTEST_MATCH and name != but:
                found.append((match, tokens[place : place + 4]))
    return sorted(found, key=lambda place: -place[0])


@settings(max_examples=300, deadline=None)
@example([("a", [0] * 5), ("b", [0] * 8), ("a", [])], [0, 0], 1, "", True)
@example([("a", [0] * 7), ("b", [0, 0, 0, 0, 1, 0, 0, 0, 0]), ("a", [])], [0] * 5, 1, "", True)
@given(CHANGES, TOKENS, st.integers(1, 30), st.sampled_from(["", "a", "z"]), st.booleans())
def test_it_finds_what_a_search_of_every_place_finds(
    changes: list[tuple[str, list[int]]], tail: list[int], most: int, but: str, one_by_one: bool
) -> None:
    """Files come, change and go (as empty ones); the tail is also one that stands in a file.

    Seen to fail: the order by 8 tokens taken for that by 16; files that were replaced still found; a range searched
    for on one side only.
    """
    index, files = WorkspaceIndex(), dict[str, list[int]]()
    for name, tokens in changes:
        files[name] = tokens
        if one_by_one:
            assert index.update({name: tokens})
    if not one_by_one:
        index.update(files)
    texts = [tokens[: len(tokens) * 2 // 3] for tokens in files.values()]
    for wanted in (tail, *texts):
        found = index.find(wanted, most, 4, but)
        expected = every_place(files, wanted, but)
        assert [place.match for place in found] == [match for match, _ in expected[:most]]
        assert all((place.match, place.tokens) in expected for place in found)
    assert index.tokens == sum(len(tokens) for tokens in files.values() if len(tokens) > SHORTEST_MATCH)


def test_of_many_equal_places_some_come_from_all_over() -> None:
    """After `1 2` a 3 stands in nine of ten places, and a 4 in those that are nearest in the order."""
    index = WorkspaceIndex()
    after = [4 if number < 100 else 3 for number in range(1000)]
    index.update({"a": [token for number in range(1000) for token in (10 + number, 1, 2, after[number])]})
    found = index.find([9, 1, 2], 20, 1)
    assert [place.match for place in found] == [2] * 20
    assert 14 <= sum(place.tokens == [3] for place in found) <= 20


def test_blocks_are_merged_and_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred files, each changed twice: a handful of blocks, and nothing dead in the most of any.

    Seen to fail: dead files carried along (the sizes add up to three times the tokens).
    """
    monkeypatch.setattr(workspace_index, "_LARGEST_BLOCK", 5000)
    rng, index = np.random.default_rng(0), WorkspaceIndex()
    for turn in range(3):
        for number in range(100):
            index.update({f"{number}": [turn, *rng.integers(0, 50, 200).tolist()]})
    assert index.tokens == 100 * 201
    assert index.files == 100
    assert index.bytes <= 2 * (100 * 202 * workspace_index.BYTES_PER_TOKEN + 100 * 512)
    assert index.find([1, 0], 5, 3) == [] or all(place.tokens for place in index.find([1, 0], 5, 3))


def test_memory_is_bounded() -> None:
    """What has no room is left out, whatever its number; what is there can still change and go.

    Seen to fail: files too short to be found counted as nothing, so a million of them fit.
    """
    index = WorkspaceIndex(most_bytes=300_000)
    taken = [index.update({f"file {number}": list(range(1000))}) for number in range(100)]
    assert 10 < sum(taken) < 40
    assert taken == sorted(taken, reverse=True)
    assert index.bytes <= 200_000
    assert not index.update({"large": list(range(10**6))})
    assert index.update({"file 0": list(range(5, 900))})
    before = index.files
    index.update({f"file {number}": [] for number in range(10)})
    assert index.files == before - 10
    assert index.update({"new": list(range(1000))})
    index.clear()
    assert (index.tokens, index.bytes, index.find([1, 2], 3, 3)) == (0, 0, [])
    for number in range(2000):
        index.update({f"{number}": [1, 2, 3]})
    assert index.bytes <= 200_000


@pytest.mark.parametrize("tail", [[], [1], [-1, -1], [2**40, 1], [1, 2**31 - 1]])
def test_tails_that_are_no_tokens_find_nothing(tail: list[int]) -> None:
    index = WorkspaceIndex()
    index.update({"a": [1, 2, 1, 2, 1]})
    assert index.find(tail, 5, 5) == []


def test_the_drafter_looks_at_the_text_before_the_cursor_and_at_no_other_version_of_it() -> None:
    """Prompt: suffix 5 6, prefix 1 2 3. Seen to fail: the tail of the prompt as it is; the own file found, too."""
    index = WorkspaceIndex()
    index.update({"own": [1, 2, 3, 99], "other": [0, 2, 3, 8, 4], "third": [0, 2, 3, 8, 7]})
    prompt = [91, 5, 6, 90, 1, 2, 3, 92]
    drafter = WorkspaceDrafter(index, Markers(frozenset({90, 91, 92}), 90, 91, 92), "own")
    list(drafter.prepare(prompt))
    draft = drafter.propose(Context(prompt, len(prompt), GREEDY, Noise(0)), 4)
    assert draft.tokens[0] == 8
    assert set(draft.tokens) == {8, 4, 7}
    said = drafter.propose(Context([*prompt, 8], len(prompt), GREEDY, Noise(0)), 4)
    assert set(said.tokens) == {4, 7}
