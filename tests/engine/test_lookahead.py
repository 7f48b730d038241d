"""Lookahead decoding: what its window learns, what its pool keeps, and that it never changes a token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import VOCABULARY, TableRunner, toy_pair

from engine.decoder import SpeculativeDecoder
from engine.drafters import lookahead
from engine.drafters.lookahead import LookaheadDrafter, NGramPool
from engine.generation import generate
from engine.model import CachedModel
from engine.request import GREEDY, CompletionRequest, Sampling
from engine.sampling import Noise


class CyclicRunner(TableRunner):
    """Says 1, 2, …, `period`, 1, … behind any token of them: a target whose thoughts ahead are true."""

    period = 6

    def forward(self, tokens, start, tail, parents=None):
        logits = super().forward(tokens, start, tail, parents).clone().fill_(0.0)
        for row, token in enumerate(tokens[-tail:]):
            logits[row, token % self.period + 1] = 9.0
        return logits


def decode(runner, drafter, sampling=GREEDY, limit=40, length=12, seed=0):
    decoder = SpeculativeDecoder(CachedModel(runner, VOCABULARY), drafter, sampling, Noise(seed), frozenset(), length)
    steps = [step for step in decoder.decode([3, 9, 4, 1], limit) if step.forwards or step.fault]
    assert not any(step.fault for step in steps)
    return [token for step in steps for token in step.tokens], steps


@pytest.mark.parametrize("sampling", [GREEDY, Sampling("sampled", 1.0), Sampling("sampled", 0.3, 3)], ids=str)
@pytest.mark.parametrize("trees", [True, False])
def test_a_lookahead_never_changes_a_token(sampling, trees):
    """Fails with the rows of an accepted branch left where they stood."""
    pool = NGramPool()
    for seed in range(6):
        runner = TableRunner()
        runner.takes_trees = trees
        plain, _ = decode(runner, None, sampling, seed=seed)
        guessed, _ = decode(runner, LookaheadDrafter(pool), sampling, seed=seed)
        assert guessed == plain


def test_what_the_target_thinks_ahead_comes_true():
    """Fails with the window left where it is, and with n-grams that begin with the token before their first."""
    plain, _ = decode(CyclicRunner(), None)
    pool = NGramPool()
    guessed, steps = decode(CyclicRunner(), LookaheadDrafter(pool))
    assert guessed == plain
    assert len(steps) < len(plain) / 2
    for token in range(1, CyclicRunner.period + 1):
        assert (token % 6 + 1, (token + 1) % 6 + 1) in pool.after(token)


def test_a_pool_outlives_a_completion():
    pool = NGramPool()
    first, again = (len(decode(CyclicRunner(), LookaheadDrafter(pool), limit=14)[1]) for _ in range(2))
    assert again < first


@given(st.lists(st.tuples(st.integers(0, 9), st.tuples(st.integers(0, 99), st.just(0))), max_size=80))
def test_a_pool_keeps_the_latest_of_each_token_and_no_more_than_it_may(added):
    pool = NGramPool()
    for token, following in added:
        pool.add(token, following)
    for token in range(10):
        latest = list(dict.fromkeys(following for first, following in reversed(added) if first == token))
        assert pool.after(token) == latest[: lookahead._EACH]


def test_a_pool_forgets_the_token_not_used_for_longest(monkeypatch):
    monkeypatch.setattr(lookahead, "_KEYS", 2)
    pool = NGramPool()
    pool.add(1, (0, 0))
    pool.add(2, (0, 0))
    assert pool.after(1)
    pool.add(3, (0, 0))
    assert [bool(pool.after(token)) for token in (1, 2, 3)] == [True, False, True]
    assert len(pool) == 2


@pytest.mark.parametrize("length", [1, 2, 3, 7, 32])
def test_a_draft_is_as_long_as_it_may_be(length):
    _, steps = decode(TableRunner(), LookaheadDrafter(NGramPool()), length=length, limit=40)
    assert all(step.drafted <= length for step in steps)
    assert max(step.drafted for step in steps) >= max(length - 1, 1)


def test_it_is_chosen_by_its_name():
    pair = replace(toy_pair(), drafter_name="lookahead")
    request = CompletionRequest("def f(", ")", max_tokens=12)
    plain, guessed = (
        [chunk.completion for chunk in generate(pair, request, drafter)][-1] for drafter in (None, pair.drafter())
    )
    assert guessed.drafter == "lookahead"
    assert guessed.token_ids == plain.token_ids
    assert guessed.drafted > 0
    assert not guessed.notes
    assert len(pair.ngrams) > 0
