"""What the engine asks of a forward, whatever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Runner(Protocol):
    """A model with a row of keys and values for each position, all of which can be overwritten at any time."""

    window: int  # the most rows
    takes_trees: bool

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        """Computes `tokens` into the rows from `start` on, attending to the rows before them and to one another.

        With `parents`, the last len(parents) tokens are a tree (`Draft.parents`): each attends to its ancestors only
        and stands at the position of its depth. Later rows count as empty. Returns the last `tail` logits,
        [tail, embedding rows].
        """
        ...

    def move_rows(self, sources: Sequence[int], start: int) -> None:
        """Copies rows to start, start + 1, …; sources rise and none stands before its new place."""
        ...


def tree_layout(width: int, start: int, parents: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Positions [width] and visibility [width, start + width] of a forward whose last tokens are a tree."""
    plain = width - len(parents)
    positions = list(range(start, start + plain))
    visible = torch.ones(width, start + width, dtype=torch.bool).tril(start)
    for node, parent in enumerate(parents):
        row = plain + node
        before = plain - 1 if parent < 0 else plain + parent  # the row this one continues
        visible[row, start + plain :] = visible[before, start + plain :] if parent >= 0 else False
        visible[row, start + row] = True
        positions.append(positions[before] + 1 if before >= 0 else start)
    return torch.tensor(positions), visible
