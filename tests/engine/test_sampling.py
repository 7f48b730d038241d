"""The warp against a slow independent one, the inverse transform against exact arithmetic, the noise by its promises.

Each test names the break it was seen to fail on.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from engine.request import GREEDY, Sampling
from engine.sampling import Noise, draw, draw_many, warp

INF = math.inf
GRID = [
    Sampling("sampled", temperature, top_k, top_p, min_p)
    for temperature, top_k, top_p, min_p in itertools.product(
        (0.2, 0.7, 1.0, 1.5), (0, 1, 3), (0.3, 0.9, 1.0), (0.0, 0.1)
    )
]


def slow_warp(logits, sampling):
    """One row, in Python's floats and by a full sort: (law, distance of the nearest decision from its threshold)."""
    vocab, nearest = range(len(logits)), INF
    if sampling.greedy:
        return [float(token == logits.index(max(logits))) for token in vocab], nearest
    law = normalised([math.exp((logit - max(logits)) / sampling.temperature) for logit in logits])
    ranked = sorted(vocab, key=lambda token: (-law[token], token))
    if sampling.top_k:
        law = normalised([law[token] * (token in ranked[: sampling.top_k]) for token in vocab])
    if sampling.top_p < 1:
        before, kept = 0.0, []
        for token in ranked:
            nearest = min(nearest, abs(before - sampling.top_p))
            if kept and before >= sampling.top_p:
                break
            kept.append(token)
            before += law[token]
        law = normalised([law[token] * (token in kept) for token in vocab])
    if sampling.min_p:
        floor = max(law) * sampling.min_p
        nearest = min(nearest, *(abs(mass - floor) for mass in law))
        law = normalised([mass * (mass >= floor) for mass in law])
    return law, nearest


def normalised(weights):
    return [weight / sum(weights) for weight in weights]


# Multiples of a half: they tie often, and those that do not tie are far apart.
logits = st.integers(-12, 12).map(lambda half: half / 2) | st.just(-INF)
rows = st.lists(logits, min_size=1, max_size=12).filter(lambda row: max(row) > -INF)


@pytest.mark.parametrize("sampling", GRID, ids=str)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(row=rows)
def test_warp_equals_the_slow_one(sampling, row):
    """Fails with ties kept at a cut, with the cuts in another order, and with a nucleus that stops one token early."""
    law, nearest = slow_warp(row, sampling)
    assume(nearest > 1e-5)  # a sum that meets its threshold to rounding may fall to either side
    ours = warp(torch.tensor([row]), sampling)
    assert ours.dtype == torch.float32
    assert ours[0].tolist() == pytest.approx(law, abs=1e-6)
    assert [mass > 0 for mass in ours[0].tolist()] == [mass > 0 for mass in law]


@pytest.mark.parametrize("sampling", GRID[::5], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_warp_computes_in_float32_or_wider(sampling, dtype):
    """Fails when a softmax is computed in the type of the logits."""
    row = torch.randn(1, 50, generator=torch.Generator().manual_seed(1)).to(dtype)
    law, nearest = slow_warp(row[0].double().tolist(), sampling)
    assert nearest > 1e-5
    ours = warp(row, sampling)
    assert ours.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert ours[0].tolist() == pytest.approx(law, abs=1e-14 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_warp_sorts_a_flat_law_as_it_does_a_peaked_one(top_p):
    """Fails when the few candidates that hold the nucleus of a peaked row are taken to be enough for every row."""
    flat, peaked = torch.zeros(1000), torch.zeros(1000)
    peaked[700] = 20.0
    slope = torch.linspace(0, 3, 1000).round(decimals=1)
    stack = torch.stack([flat, peaked, slope])
    sampling = Sampling("sampled", top_p=top_p)
    for row, law in zip(stack, warp(stack, sampling), strict=True):
        slow, _ = slow_warp(row.double().tolist(), sampling)
        assert (law > 0).tolist() == [mass > 0 for mass in slow]
        assert torch.equal(law, warp(row[None], sampling)[0])


def test_ties_at_a_cut_keep_the_lower_ids():
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0, 2.0]])
    assert warp(tied, Sampling("sampled", top_k=2))[0].tolist() == [0, 0.5, 0.5, 0, 0]
    assert warp(torch.zeros(1, 4), Sampling("sampled", top_p=0.5))[0].tolist() == [0.5, 0.5, 0, 0]
    assert warp(tied, GREEDY)[0].tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_the_nucleus_is_never_empty(top_p):
    """Fails without the clamp to one token."""
    assert warp(torch.tensor([[0.0, 9.0, 1.0]]), Sampling("sampled", top_p=top_p))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("sampling", [*GRID[::7], GREEDY], ids=str)
def test_a_forbidden_token_gets_nothing_and_one_allowed_token_gets_all(sampling):
    assert warp(torch.tensor([[-INF, 3.0, -INF]]), sampling)[0].tolist() == [0, 1, 0]


def test_every_way_to_say_greedy_is_the_same_law():
    row = torch.tensor([[0.5, 3.0, 3.0, -1.0]])
    ways = [
        GREEDY,
        Sampling("sampled", temperature=0.0),
        Sampling("sampled", temperature=1e-6),
        Sampling("sampled", temperature=1.5, top_k=1),
        Sampling("greedy", temperature=1.0, top_p=0.5),
    ]
    assert all(warp(row, way)[0].tolist() == [0, 1, 0, 0] for way in ways)


def test_large_logits_and_small_temperatures_keep_their_precision():
    """Fails when logits are divided before the highest is taken off: NaN, and a ratio that is wrong by 0.1 %."""
    coldest = Sampling("sampled", temperature=1e-5)
    assert warp(torch.tensor([[3e38, -3e38, 2e38]]), coldest)[0].tolist() == [1, 0, 0]
    step = 2.0**-10  # between neighbours in float32 at 10,000
    law = warp(torch.tensor([[1e4, 1e4 - step]]), Sampling("sampled", temperature=0.7))[0].double()
    assert float(law[1] / law[0]) == pytest.approx(math.exp(-step / 0.7), abs=1e-6)


@pytest.mark.parametrize("bad", [[0.0, math.nan], [0.0, INF], [-INF, -INF], [math.nan, math.nan]])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling("sampled")], ids=["greedy", "sampled"])
def test_logits_that_are_no_law_raise(bad, sampling):
    """Fails when only the rows' sums are looked at: a NaN among good rows was warped to an argmax of NaN."""
    with pytest.raises(FloatingPointError, match="not finite"):
        warp(torch.tensor([[0.0, 1.0], bad]), sampling)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(weights=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any), number=st.integers(0, 2**20 - 1))
def test_draw_is_the_exact_inverse_transform(weights, number):
    """Small whole weights and a number of 20 bits make the products exact. Fails with `right=False`."""
    passed = list(itertools.accumulate(weights))
    expected = next(token for token, mass in enumerate(passed) if mass * 2**20 > sum(weights) * number)
    token = draw(torch.tensor(weights, dtype=torch.float32), number / 2**20)
    assert token == expected
    assert weights[token] > 0


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("weights", [[0, 0, 1, 0], [0, 1e-30, 0], [0, 5e-324, 0], [0.0, 1 / 3, 0.0, 1e-17, 0.0]])
def test_draw_never_selects_weight_zero(weights, uniform):
    """Fails with `right=False` at 0, and without the last line of `draw`, where 5e-324 · ½ rounds up to the total."""
    assert weights[draw(torch.tensor(weights, dtype=torch.float64), uniform)] > 0


def test_rare_tokens_are_not_rounded_away():
    """Fails with a float32 sum, in which 1 + 2⁻²⁶ is 1: the whole tail would never be drawn."""
    weights = torch.tensor([1.0, *[2.0**-26] * 1024])
    total = 1 + 1024 * 2.0**-26
    assert draw(weights, (1 + 10.5 * 2.0**-26) / total) == 11


def test_draws_follow_the_weights():
    weights = torch.tensor([0.0, 3.0, 1.0, 0.0, 4.0])
    noise = Noise(5)
    counts = np.bincount([draw(weights, noise.at(position).target) for position in range(8000)], minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 2, 4]], [3000, 1000, 4000]).pvalue > 1e-3


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**64 - 1),
    asked=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=8),
)
def test_noise_depends_on_seed_position_and_sibling_alone(seed, asked):
    """Fails when numbers are drawn as they are asked for."""
    noise = Noise(seed)
    numbers = [noise.at(position, sibling) for position, sibling in asked]
    assert numbers == [Noise(seed).at(position, sibling) for position, sibling in asked]


def test_noise_differs_between_seeds_positions_siblings_and_uses():
    noises = [Noise(seed) for seed in (0, 1, 2**64 - 1)]
    places = itertools.product(noises, range(200), range(3))
    numbers = [number for noise, position, sibling in places for number in noise.at(position, sibling)]
    assert len(set(numbers)) == len(numbers)


def test_noise_is_uniform_with_53_bits():
    """Fails with float32 numbers, whose lowest 29 bits of the 53 are 0."""
    noise = Noise(11)
    table = np.array([noise.at(position) for position in range(20_000)])  # [position, use]
    assert table.min() >= 0
    assert table.max() < 1
    whole = table * 2.0**53
    assert (whole == whole.round()).all()
    assert 0.48 < (whole.astype(np.int64) % 2).mean() < 0.52
    for uses in table.T:
        assert stats.kstest(uses, "uniform").pvalue > 1e-3
    siblings = np.array([noise.at(position, 1).accept for position in range(20_000)])
    streams = np.vstack([table.T, siblings, np.roll(table[:, 0], 1)])  # the last: the next position's number
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / math.sqrt(20_000)


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-30, 0.1, 0.25, 3.0]), min_size=1, max_size=9).filter(any),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9),
)
def test_many_draws_are_those_of_draw(weights, uniforms):
    """To the token. Failed without the clamp, at the largest number."""
    law = torch.tensor(weights)
    drawn = draw_many(law, torch.tensor([*uniforms, 1 - 2**-53], dtype=torch.float64))
    assert drawn.tolist() == [draw(law, uniform) for uniform in [*uniforms, 1 - 2**-53]]


def test_the_first_numbers_are_those_of_each_position():
    noise = Noise(5)
    assert noise.first(200).tolist() == [list(noise.at(position)) for position in range(200)]
