"""Random laws of a table model: one for each history of tokens."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
History = tuple[int, ...]


@cache
def random_law(width: int, key: History) -> Array:
    """[width], sums to 1, with zeros here and there."""
    rng = np.random.default_rng(key)
    weights = rng.dirichlet(np.ones(width)) * (rng.random(width) < 0.8)
    weights[rng.integers(width)] += 0.1
    law: Array = weights / weights.sum()
    return law
