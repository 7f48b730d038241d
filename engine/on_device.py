"""Numbers that travel between the host and a device: there without waiting, back in one copy that is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

import torch
from torch import Tensor

T = TypeVar("T", int, float)


def is_near(values: Tensor) -> bool:
    """Whether looking at one of them costs nothing: on a CPU."""
    return values.device.type == "cpu"


def to_device(values: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """Without waiting for it: from pinned memory, which stays untouched until the copy is made."""
    there = torch.as_tensor(values)
    if device.type != "cuda" or there.device == device:
        return there.to(device)
    return there.pin_memory().to(device, non_blocking=True)


def to_host(values: Tensor) -> list[float]:
    """values: [n]. Waits until the device has computed them: a cycle that has everything on a device does so once."""
    numbers: list[float] = values.tolist()
    return numbers


class Guessed:
    """A chain that a draft model guessed on a device: `tokens` and `confidences` are fetched together, once.

    below: what all tokens are less than.
    """

    def __init__(self, tokens: Tensor, confidences: Tensor, below: int) -> None:
        """tokens: [k] int64; confidences: [k]."""
        self.below = below
        self.packed = torch.cat([tokens.double(), confidences.double()])  # integers below 2^53 stay what they are
        self._numbers: list[float] | None = None
        count = len(tokens)
        self.tokens = Later[int](self, range(count), int)
        self.confidences = Later[float](self, range(count, 2 * count), float)

    def tell(self, numbers: list[float]) -> None:
        """What `packed` holds, from whoever fetched it with something else."""
        self._numbers = numbers

    def numbers(self) -> list[float]:
        if self._numbers is None:
            self._numbers = to_host(self.packed)
        return self._numbers


class Later(Sequence[T], Generic[T]):
    """Some of a chain's numbers, by their places in it. To look at one is to fetch all; the length is known."""

    def __init__(self, guessed: Guessed, places: range, kind: Callable[[float], T]) -> None:
        self.guessed = guessed
        self._places = places
        self._kind: Callable[[float], T] = kind

    @property
    def there(self) -> Tensor:
        """The numbers where they are, [len]."""
        return self.guessed.packed[self._places.start : self._places.stop]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Later[T]: ...
    def __getitem__(self, index: int | slice) -> T | Later[T]:
        if isinstance(index, slice):
            return Later(self.guessed, self._places[index], self._kind)
        number: T = self._kind(self.guessed.numbers()[self._places[index]])
        return number


class Behind(Sequence[int]):
    """Known tokens, and guesses behind them that only the device may know."""

    def __init__(self, known: list[int], guesses: Later[int]) -> None:
        self.known, self.guesses = known, guesses

    def __len__(self) -> int:
        return len(self.known) + len(self.guesses)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return [*self.known, *self.guesses][index]
