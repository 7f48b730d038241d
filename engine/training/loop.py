"""Optimises what a recipe wants optimised, step by step, and can be left and gone on with between any two."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.training import progress
from engine.training.place import state_path, unwritable

_SAVE_SECONDS = 60.0
_WARM_UP = 0.03  # of the steps
_LAST_RATE = 0.05  # of the learning rate, at the end
_BETAS = (0.9, 0.98)


class Recipe(Protocol):
    """What is trained. Its loss is a function of its parameters and the step alone."""

    rate: float  # learning rate
    parameters: dict[str, Tensor]

    def loss(self, step: int) -> tuple[Tensor, float]:
        """The loss of one step, and the share of guesses in it that were right."""
        ...

    def write(self, out: Path) -> None:
        """The trained drafter. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: how many steps, where the result goes, whether to go on with an earlier training, and what that must
    have in common with this one."""

    steps: int
    out: Path
    resume: bool
    of: Mapping[str, Any]


Report = Callable[[int, float, float], None]  # steps done, loss and share of right guesses, both smoothed


def train(recipe: Recipe, order: Order, report: Report, leave: Callable[[], bool]) -> bool:
    """Whether it came to its end; if `leave` said otherwise, the state is in a file from which it goes on exactly.

    Raises ConfigError if that, or the result, cannot be written.
    """
    parameters = list(recipe.parameters.values())
    optimizer = torch.optim.AdamW(parameters, lr=recipe.rate, betas=_BETAS, weight_decay=0.01)
    state, step, smooth = state_path(order.out), 0, _Smooth()
    if order.resume:
        step = progress.restore(state, order.of, recipe.parameters, optimizer)
    saved = time.monotonic()
    try:
        while step < order.steps:
            if leave():
                progress.save(state, step, order.of, recipe.parameters, optimizer)
                return False
            loss, right = recipe.loss(step)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * _share(step, order.steps)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            report(step, *smooth.add(float(loss.detach()), right))
            if time.monotonic() - saved > _SAVE_SECONDS:
                progress.save(state, step, order.of, recipe.parameters, optimizer)
                saved = time.monotonic()
        recipe.write(order.out)
    except OSError as error:
        raise unwritable(order.out, error) from None
    state.unlink(missing_ok=True)
    return True


def _share(step: int, steps: int) -> float:
    """Of the learning rate: a short rise, then half a cosine."""
    warm = max(int(_WARM_UP * steps), 1)
    done = (step - warm) / max(steps - warm, 1)
    fall = _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * max(done, 0.0)))
    return min((step + 1) / warm, 1.0) * fall


class _Smooth:
    """Running means of a noisy pair."""

    def __init__(self) -> None:
        self._values: tuple[float, float] | None = None

    def add(self, loss: float, right: float) -> tuple[float, float]:
        old = self._values or (loss, right)
        self._values = 0.95 * old[0] + 0.05 * loss, 0.95 * old[1] + 0.05 * right
        return self._values
