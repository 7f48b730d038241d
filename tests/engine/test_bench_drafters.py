"""The comparison of drafters: what it counts, on a pair small enough to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adversaries import adversary
from toys import VOCABULARY, TableRunner, toy_pair

from engine.bench import drafters
from engine.bench.drafters import Arm, arms, replay
from engine.bench.memory import held_bytes
from engine.config import ConfigError
from engine.generation import generate
from engine.holes import cut_packages
from engine.loading import LoadedPair
from engine.request import CompletionRequest


@pytest.mark.parametrize(
    ("name", "length", "forwards"),
    [("always right", 4, 4), ("always right", 0, 20), ("always wrong", 4, 20), ("tree", 4, 8), ("empty", 4, 20)],
)
def test_replay_counts_the_forwards_of_a_target_that_says_the_answer(name: str, length: int, forwards: int) -> None:
    """Seen to fail: an accepted guess counted without the token behind it (5); only first children (tree, 20)."""
    answer = TableRunner().greedy([7, 8], 20)
    assert replay(adversary(name, answer, VOCABULARY, 99), [7, 8], answer, length) == forwards


@pytest.mark.parametrize("text", ["", "auto", "none", "lookup,", "lookup:x", "lookup:-1", "beam"])
def test_what_is_no_drafter_is_refused_with_the_choice(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^drafters: '[^']*' is none; write NAME or NAME:GUESSES.*model, lookup"):
        arms(text)


def test_arms_are_read_as_written() -> None:
    assert arms("lookup:16, merged,lookup+workspace:8") == [
        Arm("lookup", 16),
        Arm("merged", None),
        Arm("lookup+workspace", 8),
    ]
    assert [str(arm) for arm in arms("lookup:16,merged")] == ["lookup:16", "merged"]


def test_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file repeats lines of the others: the workspace knows them, and never the hole's own file.

    Seen to fail: requests without `document`, whose own file is found with the answer in it.
    """
    body = "".join(f"def f{number}(a):\n    b = a\n    return (b)\n\n" for number in range(6))
    for number in range(6):
        (tmp_path / f"{number}.py").write_text(f"x = {number}\n{body}")
    pair = toy_pair(draft=TableRunner(seed=3))
    packages = cut_packages([tmp_path], 6, 0, (".py",))
    holes = packages[tmp_path]
    told: list[drafters.Result] = []
    asked: list[tuple[str, str]] = []

    def spied(pair: LoadedPair, request: CompletionRequest, *rest: Any) -> Any:
        asked.append((request.path, request.document))
        return generate(pair, request, *rest)

    monkeypatch.setattr(drafters, "generate", spied)
    chosen = arms("model:3,lookup:8,lookup+workspace:8,merged:8")
    results, workspaces = drafters.measure_packages(pair, packages, chosen, 12, told.append)
    assert told == results
    assert [workspace["files"] for workspace in workspaces] == [6]
    assert {path for path, _ in asked} == {document for _, document in asked} == {hole.path for hole in holes}
    document = json.loads(json.dumps(drafters.document(pair, results, workspaces)))
    assert document["identical"] == {str(arm): [6, 6] for arm in chosen}
    assert set(document["classes"]) == {"line", "block"}
    for arm in chosen:
        row = document["classes"]["line"][str(arm)]
        runs = [result.runs[arm] for result in results if result.hole.kind == "line"]
        assert row["tokens_per_forward"] == pytest.approx(36 / sum(run.target_forwards for run in runs), abs=1e-3)
        assert row["over_plain"] == pytest.approx(row["tokens_per_second"] / row["plain_tokens_per_second"], rel=0.01)
        assert document["control_tokens_per_forward"][str(arm)] < 1.5
    memory = {str(arm): results[0].memory[arm] for arm in chosen}
    assert 0 < memory["lookup:8"] < memory["lookup+workspace:8"] < memory["merged:8"]
    with pytest.raises(ConfigError, match="draft model"):
        drafters.measure(toy_pair(), holes, arms("model"), 4, told.append)


def test_holes_of_several_packages_are_shared_out(tmp_path: Path) -> None:
    """The small one gives what it has, the others the rest, in equal parts; each hole names a file of its own."""
    for name, files in (("small", 1), ("one", 9), ("other", 9)):
        (tmp_path / name).mkdir()
        for number in range(files):
            text = f"def {name}_{number}(a):\n    b = a + {number}\n    return (b)\n"
            (tmp_path / name / f"{name}{number}.py").write_text(text)
    folders = [tmp_path / name for name in ("one", "small", "other")]
    packages = cut_packages(folders, 12, 0, (".py",))
    assert {folder.name: len(holes) for folder, holes in packages.items()} == {"small": 2, "one": 5, "other": 5}
    assert all(hole.path.startswith(folder.name) for folder, holes in packages.items() for hole in holes)
    with pytest.raises(ValueError, match="holes of 99"):
        cut_packages(folders, 99, 0, (".py",))


def test_what_is_held_is_counted_once_and_not_what_another_holds() -> None:
    class Owner:
        __slots__ = ("array", "parts")

        def __init__(self, *parts: object) -> None:
            self.array, self.parts = np.zeros(10, dtype=np.int32), {"a": [*parts], "b": parts}

    shared = torch.zeros(100)
    assert held_bytes(Owner(shared, shared[:5])) == 440
    assert held_bytes(Owner(shared, torch.zeros(2)), beside=[shared[50:]]) == 48
