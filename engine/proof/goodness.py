"""How well counts fit a law: deviations in standard errors, Pearson's chi-square, total variation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_LEAST_EXPECTED = 25  # outcomes expected less often are counted together: a normal law is no model of rarer ones


@dataclass(frozen=True, slots=True)
class Fit:
    """Counts against a law. An outcome that the law excludes makes the deviation and the chi-square infinite."""

    largest_deviation: float  # of an outcome's frequency, in standard errors of the draw
    chi_square: float
    degrees: int
    p_value: float  # of a chi-square as large, were the law the truth
    total_variation: float
    expected_total_variation: float  # of as many draws from the law itself

    @property
    def passed(self) -> bool:
        return self.largest_deviation < 5 and self.p_value > 1e-6


def fit(p: Tensor, counts: Tensor) -> Fit:
    """p: [n] float64, sums to 1. counts: [n] int64, sum > 0."""
    draws = int(counts.sum())
    deviation, chi_square, degrees = math.inf, math.inf, 1
    if not bool(counts[p == 0].any()):
        expected, observed = _bins(p * draws, counts.double())
        apart = (observed - expected).abs()
        error = (expected * (1 - expected / draws)).clamp(min=1.0).sqrt()  # below 1 only if one bin holds everything
        deviation, chi_square = float((apart / error).max()), float((apart**2 / expected).sum())
        degrees = len(expected) - 1
    return Fit(
        largest_deviation=deviation,
        chi_square=chi_square,
        degrees=degrees,
        p_value=chi_square_p_value(chi_square, degrees),
        total_variation=float((counts / draws - p).abs().sum()) / 2,
        expected_total_variation=_expected_total_variation(p, draws),
    )


def _bins(expected: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Outcomes one by one while they are frequent, and all the others together, that bin frequent too."""
    order = expected.argsort(descending=True)
    expected, observed = expected[order], observed[order]
    alone = int((expected >= _LEAST_EXPECTED).sum())
    if alone and float(expected[alone:].sum()) < _LEAST_EXPECTED:
        alone -= 1
    both = (torch.cat([numbers[:alone], numbers[alone:].sum()[None]]) for numbers in (expected, observed))
    return next(both), next(both)


def chi_square_p_value(chi_square: float, degrees: int) -> float:
    """The probability that a chi-square variable is at least as large; 1 without a degree of freedom."""
    if degrees == 0 or chi_square == math.inf:
        return float(degrees == 0)
    half = torch.tensor([degrees / 2, chi_square / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _expected_total_variation(p: Tensor, draws: int) -> float:
    """Half the sum of the binomials' mean absolute deviations, each by De Moivre's closed form."""
    above = (p * draws).floor() + 1  # the least count above the mean
    count = torch.tensor(float(draws), dtype=torch.float64)
    choose = torch.lgamma(count + 1) - torch.lgamma(above + 1) - torch.lgamma(count - above + 1)
    log_mass = choose + above * p.log() + (count - above + 1) * torch.log1p(-p)
    deviations = torch.where((p > 0) & (p < 1), 2 * above * log_mass.exp(), 0.0)
    return float(deviations.sum()) / (2 * draws)
