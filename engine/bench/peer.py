"""What a peer of the benchmark is: somebody else's decoding of the same prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """One prompt, continued greedily to a fixed number of tokens. ms_per_token leaves the first answer out, as ours."""

    token_ids: tuple[int, ...]
    ttft_ms: float
    total_ms: float
    ms_per_token: float


Peer = Callable[[Sequence[int], int], Run]
