"""The draft policy against every fixed length, on simulated machines and texts: time is counted, not measured."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.costs import Costs
from engine.policy import UNLIMITED, Budget, DraftPolicy
from engine.speculation import Draft

# Milliseconds over 1, 2, … tokens, and of a draft forward: an int8 CPU, a GPU, a CPU where any width beyond 1 is dear.
MACHINES = {
    "cpu": ([9.5, 11.0, 12.6, 14.3, 24.0, 25.0, 26.0, 27.0, 28.0], 2.0),
    "gpu": ([4.4, 4.4, 4.5, 4.5, 4.6, 4.6, 4.7, 4.8, 4.8], 0.6),
    "float32 cpu": ([12.5, 20.0, 24.0, 27.0, 27.0, 27.0, 27.0, 27.0, 27.0], 6.0),
}
LENGTHS = [0, 1, 2, 3, 5, 7]


@dataclass
class Text:
    """Where guesses come true with a probability that the drafter's confidence tells roughly."""

    acceptance: Callable[[int], float]  # the mean in each cycle
    cycles: int = 1200
    noise: float = 0.15  # of the confidence about the truth

    def decode(self, machine: str, budget: Budget, limit: int, policy: DraftPolicy | None = None) -> list[Cycle]:
        verify_ms, draft_ms = MACHINES[machine]
        rng, cycles, completion = random.Random(1), list[Cycle](), 0
        for number in range(self.cycles):
            draft, true = self._draft(rng, number, budget, limit)
            accepted = next((place for place, hit in enumerate(true) if not hit), len(true))
            ms = draft.forwards * draft_ms + verify_ms[len(draft)]
            cycles.append(Cycle(len(draft), accepted + 1, ms))
            if policy is not None:
                policy.learn(draft, tuple(range(accepted)), accepted + 1)
                policy.costs.took(len(draft) + 1, verify_ms[len(draft)], draft.forwards, draft.forwards * draft_ms)
            completion += accepted + 1
            if policy is not None and completion > 20:  # a block of code
                policy.begin()
                completion = 0
        return cycles

    def _draft(self, rng: random.Random, number: int, budget: Budget, limit: int) -> tuple[Draft, list[bool]]:
        mean, reach, passed_over = self.acceptance(number), 1.0, None
        confidences, true, forwards = list[float](), list[bool](), 0
        while len(true) < limit and budget.wants(reach, len(true)):
            truth = rng.betavariate(2 * mean, 2 * (1 - mean))
            confidence = min(max(truth + rng.gauss(0, self.noise), 0.01), 0.99)
            forwards += 1
            reach *= budget.acceptance(confidence)
            if not budget.keeps(reach, len(true)):
                passed_over = confidence
                break
            confidences.append(confidence)
            true.append(rng.random() < truth)
        return Draft.chain([0] * len(true), None, confidences, forwards, passed_over), true


@dataclass
class Cycle:
    guesses: int
    tokens: int
    ms: float


def ms_per_token(cycles: list[Cycle]) -> float:
    return sum(cycle.ms for cycle in cycles) / sum(cycle.tokens for cycle in cycles)


def policy_for(machine: str) -> DraftPolicy:
    """One that knows nothing of the machine yet."""
    return DraftPolicy(Costs([1 + 0.2 * more for more in range(9)], 0.2))


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize("machine", ["cpu", "gpu"])
def test_it_is_as_good_as_the_best_fixed_length(machine: str, mean: float) -> None:
    """And never loses to plain decoding what matters. Seen to fail: a token worth nothing (0 guesses everywhere);
    costs never learned (gpu, 0.3); no recent acceptance (cpu, 0.1).
    """
    text = Text(lambda _: mean)
    fixed = {length: ms_per_token(text.decode(machine, UNLIMITED, length)) for length in LENGTHS}
    policy = policy_for(machine)
    ours = ms_per_token(text.decode(machine, policy, 8, policy))
    assert min(fixed.values()) / ours >= 0.95, fixed
    assert fixed[0] / ours >= 0.97


def test_where_every_guess_is_dear_it_stays_near_plain_decoding() -> None:
    """Drafting costs half a token here: to learn that is not free, and most of it is in the first cycles."""
    for mean in (0.1, 0.5, 0.85):
        text, policy = Text(lambda _, mean=mean: mean), policy_for("float32 cpu")
        plain = ms_per_token(text.decode("float32 cpu", UNLIMITED, 0))
        assert plain / ms_per_token(text.decode("float32 cpu", policy, 8, policy)) >= 0.93


@pytest.mark.parametrize("machine", ["cpu", "gpu"])
def test_it_follows_a_change_within_twenty_cycles(machine: str) -> None:
    """Code, prose, code …, a hundred cycles each. Seen to fail with acceptance averaged over all completions."""
    text = Text(lambda number: 0.9 if number // 100 % 2 == 0 else 0.1, cycles=2000)
    fixed = {length: ms_per_token(text.decode(machine, UNLIMITED, length)) for length in LENGTHS}
    policy = policy_for(machine)
    cycles = text.decode(machine, policy, 8, policy)
    assert ms_per_token(cycles) < 0.95 * min(fixed.values())
    after = {place: [cycles[start + place] for start in range(200, 2000, 200)] for place in range(200)}
    in_code = _mean(after, range(60, 100))
    in_prose = _mean(after, range(160, 200))
    assert in_code > 4 * in_prose
    assert _mean(after, range(15, 25)) > 0.7 * in_code
    assert _mean(after, range(115, 125)) < 0.3 * in_code


def _mean(after: dict[int, list[Cycle]], places: range) -> float:
    guesses = [cycle.guesses for place in places for cycle in after[place]]
    return sum(guesses) / len(guesses)


class TestCosts:
    def test_before_anything_was_measured_the_ratios_count(self) -> None:
        costs = Costs([1, 1.5, 1.6], 0.2)
        assert [costs.verify(width) for width in (1, 2, 3)] == [1, 1.5, 1.6]
        assert costs.verify(5) == pytest.approx(1.8)
        assert costs.wider(0) == 0.5

    def test_a_measured_width_scales_the_others(self) -> None:
        """Seen to fail with one sample taken for the truth."""
        costs = Costs([1, 1.5, 2], 0.25)
        for ms in (30.0, 900.0, 30.0):
            costs.took(2, ms, 1, 5.0)
        assert [costs.verify(width) for width in (1, 2, 3)] == [20, 30, 40]
        assert costs.draft_ms == 5.0

    def test_a_busy_moment_is_forgotten(self) -> None:
        costs = Costs([1, 2], 0.25)
        for ms in [10.0] * 8 + [400.0] * 5 + [10.0] * 8:
            costs.took(1, ms, 0, 0.0)
        assert costs.verify(1) == 10.0
        assert costs.draft_ms == 2.5

    def test_wider_is_never_cheaper(self) -> None:
        costs = Costs([1, 1.1, 1.2], 0.2)
        for width, ms in ((1, 10.0), (2, 8.0), (3, 9.0)):
            for _ in range(5):
                costs.took(width, ms, 0, 0.0)
        assert [costs.verify(width) for width in (1, 2, 3)] == [10, 10, 10]


class TestTrees:
    """How many free guesses, and what is learned of each source."""

    def policy(self, *ratios: float) -> DraftPolicy:
        return DraftPolicy(Costs(ratios, 0.2))

    def test_as_many_as_gain_more_than_they_cost(self) -> None:
        """Widths: two guesses cost nothing, the third a whole forward, those behind it nothing again.

        Seen to fail: an end at the first guess that does not pay for itself (2, with nine certain ones behind it).
        """
        policy = self.policy(1, 1, 1, *[2.0] * 9)
        assert policy.fits([]) == 0
        assert policy.fits([0.5, 0.4]) == 2
        assert policy.fits([0.9, 0.8, 0.1]) == 2
        assert policy.fits([0.9] * 9) == 9
        assert policy.fits([0.9, 0.9], behind=2) == 2
        assert policy.fits([0.4, 0.4], behind=2) == 0
        assert UNLIMITED.fits([0.1] * 4) == 4

    def test_each_source_is_calibrated_by_itself(self) -> None:
        """Both say 0.55; one is always right, the other never. Seen to fail: one calibration for all."""
        policy = self.policy(1, 1, 1)
        draft = Draft((5, 6), (-1, -1), None, (0.55, 0.55), sources=("good", "bad"))
        for _ in range(30):
            policy.learn(draft, (0,), 2)
        assert policy.acceptance(0.55, "good") > 0.85
        assert policy.acceptance(0.55, "bad") < 0.15
        assert policy.acceptance(0.55) == pytest.approx(0.55, abs=0.06)

    def test_siblings_that_did_not_come_true_are_no_failure_of_the_place(self) -> None:
        """One of three guesses side by side comes true each time: to guess at all pays.

        Seen to fail: each sibling counted as a guess of its own.
        """
        policy = self.policy(1, 1.2, 1.2, 1.2, 1.2)
        draft = Draft((5, 6, 7), (-1, -1, -1), None, (0.3, 0.3, 0.3), forwards=1, sources=("a", "a", "a"))
        for _ in range(30):
            policy.learn(draft, (1,), 2)
        assert policy.wants(1.0, 0)


def test_what_a_chain_costs_is_what_the_target_does_not_take() -> None:
    """On a GPU both are waited for at once. Seen to fail: all of it taken for the target's; counted before anything of
    the target's is known, when a plain forward is the unit."""
    costs = Costs([1 + 0.01 * more for more in range(9)], draft_ratio=0.2)
    for _ in range(5):
        costs.took_together(5, 6.2, 4)
    assert (costs.verify(5), costs.draft_ms) == (1.04, 0.2)
    for _ in range(5):
        costs.took(1, 4.0, 0, 0.0)
        costs.took_together(5, 6.16, 4)
    assert costs.verify(5) == pytest.approx(4.16)
    assert costs.draft_ms == pytest.approx(0.5)
