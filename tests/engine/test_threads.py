"""The choice of threads on simulated machines, and that it changes no number."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from engine import embedded, threads
from engine.fast_llama import FastLlamaRunner
from engine.threads import ThreadChoice, ThreadedRunner


def run(choice: ThreadChoice, ms: Callable[[int, int], float], forwards: int, seed: int = 0) -> list[int]:
    """The numbers of threads taken; ms(width, count) is what the machine takes, give or take a tenth."""
    rng, counts = random.Random(seed), list[int]()
    for _ in range(forwards):
        width, count = rng.choice([1, 1, 2, 4]), choice.count()
        choice.took(width, count, ms(width, count) * rng.uniform(0.9, 1.1))
        counts.append(count)
    return counts


@pytest.mark.parametrize(
    ("ms", "best"),
    [
        (lambda width, count: 10 * width**0.5, 1),  # more threads gain nothing
        (lambda width, count: 10 * width**0.5 / count, 8),
        (lambda width, count: 10 * width**0.5 * (1 / count + count / 16), 4),
        (lambda width, count: 10.0 if count == 1 else 1000.0, 1),  # others run on this machine
    ],
    ids=["flat", "the more the better", "a few are best", "busy"],
)
def test_it_finds_the_best_number(ms: Callable[[int, int], float], best: int) -> None:
    """Seen to fail without trials."""
    choice = ThreadChoice(8)
    counts = run(choice, ms, 3000)
    assert choice.settled == best
    assert counts[1000:].count(best) / len(counts[1000:]) > 0.85


def test_it_follows_the_machine() -> None:
    """Idle, busy, idle. Seen to fail with trials of more threads only."""
    choice = ThreadChoice(4)
    run(choice, lambda width, count: 40 / count, 800)
    assert choice.settled == 4
    run(choice, lambda width, count: 10.0 * count**2, 800)
    assert choice.settled == 1
    run(choice, lambda width, count: 40 / count, 1600)
    assert choice.settled == 4


def test_a_busy_machine_pays_little_for_the_trials() -> None:
    counts = run(ThreadChoice(2), lambda width, count: 10.0 if count == 1 else 30.0, 3000)
    assert counts.count(2) / len(counts) < 0.08


def test_one_thread_is_no_choice() -> None:
    assert set(run(ThreadChoice(1), lambda width, count: 5.0, 50)) == {1}


@pytest.mark.parametrize("most", [1, 2, 3, 6, 8, 24])
def test_the_numbers_to_choose_from(most: int) -> None:
    counts = ThreadChoice(most)._counts
    assert counts[0] == 1
    assert counts[-1] == most
    assert all(less < more for less, more in pairwise(counts))


def test_a_model_loaded_later_has_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail with torch's present number, which the model before it had set: prompts with one thread for good."""
    monkeypatch.setattr(threads, "MOST", 3)  # whatever this machine and this test run have
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # as a token's forward leaves it
        later = ThreadedRunner(FastLlamaRunner(embedded.shape("draft"), embedded.stored_weights("draft")))
        later.forward(list(range(40)), 0, 1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_the_runner_computes_the_same() -> None:
    """Whatever threads it takes: bit for bit, and across trials."""
    weights = embedded.stored_weights("draft")
    plain, threaded = (FastLlamaRunner(embedded.shape("draft"), weights) for _ in range(2))
    runner = ThreadedRunner(threaded)
    tokens = torch.randint(16000, (340,), generator=torch.Generator().manual_seed(0)).tolist()
    before = torch.get_num_threads()
    try:
        assert torch.equal(plain.forward(tokens[:300], 0, 1), runner.forward(tokens[:300], 0, 1))
        for place in range(300, 340, 2):
            ours = runner.forward(tokens[place : place + 2], place, 2)
            torch.set_num_threads(before)
            assert torch.equal(plain.forward(tokens[place : place + 2], place, 2), ours)
        assert (runner.window, runner.takes_trees) == (plain.window, plain.takes_trees)
    finally:
        torch.set_num_threads(before)
