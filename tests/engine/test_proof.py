"""The proof itself: it passes on the engine as it is, and a broken engine does not pass it."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from engine import decoder, proof
from engine.config import ConfigError, EngineConfig
from engine.drafters.merged import MergedDrafter
from engine.loading import load
from engine.proof import cycles, frequencies, integral, tables
from engine.proof.goodness import chi_square_p_value, fit
from engine.request import GREEDY, Sampling
from engine.sampling import draw
from engine.speculation import Draft, Verdict, verify
from engine.workspace_files import fill_workspace


@pytest.fixture(scope="module")
def pair():
    return load(EngineConfig(dtype="float32", device="cpu"))


def accept_everything(p, draft, noise, position):
    """The verifier that makes every draft look right."""
    path = range(len(draft)) if draft.is_chain else ()
    return Verdict(tuple(path), draw(p[len(draft)], noise.at(position + len(draft)).target), len(draft))


def test_exact_tables_pass_and_name_every_rule():
    heard = []
    result = proof.exact_tables(tables=2, report=heard.append)
    assert result.passed
    cycles_ = [f"a cycle of the decoder, {name}" for name in cycles.DRAFTERS]
    assert [check.rule for check in result.rules] == [*tables.RULES, *cycles_]
    assert heard == sorted(heard)
    assert heard[-1] == 1
    assert result.largest_error == max(check.largest_error for check in result.rules)


def test_exact_tables_catch_a_broken_verifier(monkeypatch):
    monkeypatch.setattr(integral, "verify", accept_everything)
    result = proof.exact_tables(tables=1)
    assert not result.passed
    assert result.largest_error > 0.1


@pytest.mark.parametrize("name", cycles.DRAFTERS)
def test_a_cycle_with_a_broken_verifier_shows(name, monkeypatch):
    def accepts_the_first(p, draft, noise, position):
        return Verdict((0,), draw(p[1], noise.at(position + 1).target), 1) if len(draft) else verify(p, draft, noise, 0)

    monkeypatch.setattr(decoder, "verify", accepts_the_first)
    assert cycles.largest_cycle_error(name, 0) > 1e-6  # the proof allows 1e-12


class Choosy(MergedDrafter):
    """Leaves its draws out if it does not like the first of them."""

    def _around(self, chain, tree, context, limit):
        return super()._around(chain, tree, context, limit) if chain.tokens[0] else Draft()


def test_a_draft_that_depends_on_what_was_drawn_shows(monkeypatch):
    """The kind of mistake that no table of `verify` alone can find."""
    monkeypatch.setattr(cycles, "MergedDrafter", Choosy)
    assert max(cycles.largest_cycle_error("merged", seed) for seed in range(2)) > 1e-6


def test_verdicts_measure_probabilities_to_rounding():
    """Thresholds that are no binary fractions, found by bisection: [1/3, 2/3) of one number, then 1/7 of another."""
    p = torch.tensor([[1.0, 1.0, 1.0], [1.0, 6.0, 0.0]], dtype=torch.float64) / torch.tensor([[3.0], [7.0]])
    law = {
        (verdict.path, verdict.next_token): volume
        for verdict, volume in integral.verdicts(p, Draft.chain([1]), borders=[])
    }
    expected = {((), 0): 1 / 3, ((), 2): 1 / 3, ((0,), 0): 1 / 21, ((0,), 1): 6 / 21}
    assert law == pytest.approx(expected, abs=1e-14)


def test_holes_are_requests_around_a_piece_of_a_file(tmp_path):
    text = "".join(f"value_{number} = compute({number}, {number})\n" for number in range(300))
    for number in range(4):
        (tmp_path / f"{number}.py").write_text(text)
    holes = proof.cut_holes(tmp_path, count=4, seed=4)
    assert holes == proof.cut_holes(tmp_path, count=4, seed=4)
    assert holes != proof.cut_holes(tmp_path, count=4, seed=5)
    for hole in holes:
        assert hole.prefix in text
        assert hole.suffix in text
        assert hole.prefix + hole.suffix not in text


def test_speculative_decoding_equals_plain_decoding(pair):
    holes = proof.cut_holes(count=2, seed=1)
    result = proof.equality(pair, holes, max_tokens=12)
    assert result.passed
    assert (result.holes, result.tokens, result.differences) == (2, 24, ())
    assert 0 < result.accepted <= result.drafted
    assert result.forwards < result.tokens


def test_greedy_equality_catches_a_broken_verifier(pair, monkeypatch):
    """And says where, and that it was no tie."""
    monkeypatch.setattr(decoder, "verify", accept_everything)
    result = proof.equality(pair, proof.cut_holes(count=2, seed=1), max_tokens=12)
    assert not result.passed
    assert {difference.hole for difference in result.differences} <= {0, 1}
    assert all(0 <= difference.position < 12 for difference in result.differences)
    assert max(difference.margin for difference in result.differences) > 0.01


@pytest.mark.parametrize("name", proof.SAMPLED)
@pytest.mark.parametrize("sampling", proof.LAWS, ids=["top-p 1", "top-p 0.9"])
def test_first_tokens_follow_the_target(pair, sampling, name):
    """Seen to fail with draws in the batch from p itself after a rejection, and with the draws of q for them."""
    drawing = replace(pair, drafter_name=name)
    [result] = proof.first_tokens(drawing, proof.PROMPTS[1:2], draws=3000, seed=7, sampling=sampling)
    assert result.passed, result
    assert result.draws == 3000
    assert result.drafter == name
    assert result.alike == result.repeated > 0
    assert result.acceptance == pytest.approx(result.expected_acceptance, abs=0.05)
    of_the_draw = 1 - result.draft_total_variation
    assert result.expected_acceptance >= of_the_draw - 1e-5
    assert name != "model" or result.expected_acceptance == pytest.approx(of_the_draw, abs=1e-5)
    assert result.fit.total_variation < 2 * result.fit.expected_total_variation < result.draft_total_variation
    probabilities = [token.target for token in result.tokens]
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(abs(token.observed - token.target) <= 5 * token.standard_error + 1e-9 for token in result.tokens)


def test_first_tokens_catch_a_broken_verifier(pair, monkeypatch):
    monkeypatch.setattr(frequencies, "verify", accept_everything)
    [result] = proof.first_tokens(pair, proof.PROMPTS[:1], draws=500)
    assert not result.passed
    assert result.alike < result.repeated


def test_first_tokens_catch_a_wrong_law(pair, monkeypatch):
    """Of rejected guesses replaced by draws from p itself: what is emitted, not only how it is made, is looked at."""
    monkeypatch.setattr(frequencies, "residual", lambda p, q: p)
    [result] = proof.first_tokens(pair, proof.PROMPTS[:1], draws=3000)
    assert not result.fit.passed


def test_a_proof_without_a_drafter_is_the_users_mistake(pair):
    for without in (replace(pair, draft=None), replace(pair, drafter_name="lookup")):
        with pytest.raises(ConfigError, match="drafter: only model and merged draw"):
            next(proof.first_tokens(without))


@pytest.mark.parametrize("name", ["lookup", "workspace", "merged"])
@pytest.mark.parametrize("sampling", [GREEDY, proof.LAWS[0]], ids=["greedy", "drawn"])
def test_certain_guesses_give_the_tokens_of_plain_decoding(pair, name, sampling, tmp_path):
    """Some are accepted, or nothing would be proved. Fails, drawn, with a verifier that descends to the first guess."""
    text = "".join(f"def area_{n}(width, height):\n    return width * height * {n}\n\n\n" for n in range(40))
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.py").write_text(text)
    fill_workspace(pair, tmp_path)
    certain = proof.with_certain_guesses(replace(pair, drafter_name=name))
    result = proof.equality(certain, proof.cut_holes(tmp_path, count=2, seed=2), 16, sampling=sampling)
    pair.workspace.clear()
    assert result.passed, result
    assert result.accepted > 0


def test_draws_of_one_seed_catch_a_broken_verifier(pair, monkeypatch):
    """What they part by is no rounding. Fails when every difference counts as a tie."""
    lookup = replace(pair, drafter_name="lookup")
    monkeypatch.setattr(decoder, "verify", accept_everything)
    result = proof.equality(lookup, proof.cut_holes(count=3, seed=1), 12, sampling=proof.LAWS[0])
    assert not result.passed
    assert result.ties < len(result.differences)


def test_a_draw_that_rounding_decides_is_a_tie():
    unlike = proof.Equality(2, 1, 2, 48, 30, 20, 10, (proof.Difference(1, 5, 1e-7),), ties=1)
    assert unlike.passed
    assert not replace(unlike, ties=0).passed
    assert not replace(unlike, equal_to_end=0).passed


def test_a_model_that_draws_has_no_certain_guesses(pair):
    assert proof.with_certain_guesses(replace(pair, drafter_name="model")) is None


def test_fit_agrees_with_scipy():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    counts = torch.tensor([520, 270, 210])
    expected = stats.chisquare(counts.numpy(), p.numpy() * 1000)
    result = fit(p, counts)
    assert result.chi_square == pytest.approx(expected.statistic)
    assert result.p_value == pytest.approx(expected.pvalue)
    assert result.degrees == 2
    assert result.largest_deviation == pytest.approx(30 / np.sqrt(1000 * 0.3 * 0.7))
    assert result.total_variation == pytest.approx(0.03)
    assert chi_square_p_value(700.0, 650) == pytest.approx(stats.chi2.sf(700.0, 650))


def test_fit_counts_rare_outcomes_together():
    """Fails when each of the thousand is compared alone: one that came once is 30 standard errors off."""
    p = torch.cat([torch.tensor([0.9]), torch.full((1000,), 1e-4)]).double()
    p /= p.sum()
    counts = torch.zeros(1001, dtype=torch.int64)
    counts[0], counts[1:101] = 900, 1
    result = fit(p, counts)
    assert result.degrees == 1
    assert result.passed


def test_fit_forgives_nothing_that_is_impossible():
    result = fit(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([999, 1]))
    assert not result.passed
    assert result.largest_deviation == float("inf")
    assert fit(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([1000, 0])).passed


def test_expected_total_variation_is_that_of_real_draws():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(300, 0.1))
    distances = [np.abs(rng.multinomial(500, p) / 500 - p).sum() / 2 for _ in range(400)]
    counts = torch.tensor(rng.multinomial(500, p))
    assert fit(torch.tensor(p), counts).expected_total_variation == pytest.approx(np.mean(distances), rel=0.01)


def results():
    token = frequencies.TokenFrequency("$x\n  ", target=0.5, draft=0.2, observed=0.51, standard_error=0.02)
    result = frequencies.FirstTokens(
        drafter="model",
        prompt="    return ",
        sampling=Sampling("sampled", top_p=0.9),
        draws=600,
        tokens=(token, replace(token, text="long" * 9)),
        fit=fit(torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([306, 294])),
        draft_total_variation=0.3,
        acceptance=0.7,
        expected_acceptance=0.69,
        repeated=256,
        alike=256,
    )
    return [result, replace(result, prompt="    ", sampling=GREEDY), result]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_writes_the_picture_that_the_name_asks_for(tmp_path, suffix, start):
    path = tmp_path / f"first.{suffix}"
    proof.plot(results(), path)
    assert path.read_bytes().startswith(start)


def test_plot_says_when_matplotlib_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError):
        proof.plot(results(), tmp_path / "first.png")
    assert not list(tmp_path.iterdir())
