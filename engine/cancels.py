"""How fast cancelled generations ended."""

from __future__ import annotations

import time
from collections import deque
from typing import Any


class Cancels:
    """The latest thousand of one engine."""

    def __init__(self) -> None:
        self._ms: deque[float] = deque(maxlen=1000)
        self._tokens = 0

    def add(self, cancelled_at: float, tokens: int) -> None:
        """`cancelled_at` is a time.perf_counter(); `tokens` were computed after it."""
        self._ms.append(1000 * (time.perf_counter() - cancelled_at))
        self._tokens += tokens

    def to_json(self) -> dict[str, Any]:
        times = sorted(self._ms)
        share = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        at = {name: times[round(part * (len(times) - 1))] if times else 0.0 for name, part in share.items()}
        return {"tokensAfterCancel": self._tokens, "cancelToIdleMs": {name: round(ms, 2) for name, ms in at.items()}}
