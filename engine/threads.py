"""How many threads a forward on a CPU takes: as many as are fastest just now, for a machine has other things to do.

A forward over one token is a hundred small products, and more threads must meet after each. On two idle cores a second
thread gains little there; with other programs running, waiting for it costs more than the work (README).
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.runners import Runner, WrappedRunner

# Once for the process: torch gives a thread that comes later the number that was set last.
MOST = torch.get_num_threads()

_NARROW = 24  # tokens; a wider forward is large products, which all threads share well
_SAMPLES = 4  # times of one width and number of threads; their median is compared
_BETTER = 0.9  # of the present time, or it is not worth a change
_SOONEST, _LATEST = 4, 128  # forwards between two trials of another number


class ThreadChoice:
    """The number of threads for narrow forwards, by trial: now and then a neighbour of the present number is timed."""

    def __init__(self, most: int) -> None:
        """most: threads there are. Begins with one, which is never slow because of others."""
        self._counts = [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]
        self._index = 0
        self._upwards = True
        self._interval = self._waited = _SOONEST
        self._samples: dict[tuple[int, int], deque[float]] = {}

    @property
    def settled(self) -> int:
        """What is thought best at present."""
        return self._counts[self._index]

    def count(self) -> int:
        """For the next forward."""
        trial = self._neighbour()
        return self._counts[trial] if self._waited >= self._interval and trial is not None else self.settled

    def took(self, width: int, count: int, ms: float) -> None:
        """A forward over `width` tokens with `count` threads."""
        samples = self._samples.setdefault((width, count), deque(maxlen=_SAMPLES))
        samples.append(ms)
        if count == self.settled:
            self._waited += 1
            return
        if len(samples) < _SAMPLES:
            return
        self._waited = 0
        now = self._samples.get((width, self.settled), ())
        if len(now) < _SAMPLES:
            return
        if statistics.median(samples) < _BETTER * statistics.median(now):
            self._index = self._counts.index(count)
            self._interval = _SOONEST
        else:
            self._upwards = not self._upwards
            self._interval = min(2 * self._interval, _LATEST)
        self._forget(keep=self.settled)

    def _neighbour(self) -> int | None:
        for step in (1, -1) if self._upwards else (-1, 1):
            if 0 <= self._index + step < len(self._counts):
                return self._index + step
        return None

    def _forget(self, keep: int) -> None:
        """What was true of other numbers may not be when they are tried next."""
        for key in [key for key in self._samples if key[1] != keep]:
            del self._samples[key]


class ThreadedRunner(WrappedRunner):
    """Another runner with its threads chosen. The numbers it computes do not depend on them."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self._choice = ThreadChoice(MOST)

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        if len(tokens) > _NARROW:
            torch.set_num_threads(MOST)
            return self._inner.forward(tokens, start, tail, parents)
        count = self._choice.count()
        torch.set_num_threads(count)
        started = time.perf_counter()
        logits = self._inner.forward(tokens, start, tail, parents)
        self._choice.took(len(tokens), count, 1000 * (time.perf_counter() - started))
        return logits

    def fill(self, tokens: Sequence[int], start: int) -> Iterator[None]:
        torch.set_num_threads(MOST)
        for _ in self._inner.fill(tokens, start):
            yield
            torch.set_num_threads(MOST)  # others may have had their turn meanwhile
