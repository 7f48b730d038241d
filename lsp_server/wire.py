"""How the parts of a session speak to their client, without knowing the protocol's library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wire:
    """`tell` sends a notification, `ask` a request; params and results are plain JSON."""

    tell: Callable[[str, Any], None]
    ask: Callable[[str, Any], Awaitable[Any]]
