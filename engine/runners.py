"""What the engine asks of a forward, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from engine.request import Sampling

# Keys and values of one place after another: [..., positions, size] each, as many as the runner has buffers.
Rows = tuple[Tensor, ...]


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

    def fill(self, tokens: Sequence[int], start: int) -> Iterator[None]:
        """The same rows without logits, pausing on the way: they count once it has ended, and until then it can be
        left, or gone on with later if nothing else was computed. Those that inherit compute them in one forward."""
        self.forward(tokens, start, 1)
        yield

    def move_rows(self, sources: Sequence[int], start: int) -> None:
        """Copies rows to start, start + 1, …; sources rise and none stands before its new place."""
        ...

    def read_rows(self, start: int, end: int) -> Rows:
        """Views of the rows from `start` to `end`, all of which were computed; of hidden states that are kept, too."""
        ...

    def write_rows(self, rows: Rows, start: int) -> None:
        """Copies such rows into those from `start` on."""
        ...


class FeatureRunner(Runner, Protocol):
    """A runner that has the model's features to show: its last hidden states and its embeddings."""

    def keep_hidden(self) -> int:
        """From the next forward on, rows have the last hidden state (what the output embedding is multiplied with) as
        well, and it moves with them. Returns its size. Nothing is kept, and nothing spent, where nobody asks."""
        ...

    def hidden(self, start: int, end: int) -> Tensor:
        """The last hidden states of the rows start … end - 1, [end - start, size]."""
        ...

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """The input embedding of `tokens`, [len(tokens), size]."""
        ...

    def reader(self, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """What makes of last hidden states [n, size] the logits of `tokens`, [n, len(tokens)]."""
        ...


class Drawn(NamedTuple):
    """A chain that is still on a device. confidences: the highest probability of each law, unwarped if greedy."""

    tokens: Tensor  # [k] int64
    laws: Tensor  # [k, vocab] float32
    confidences: Tensor  # [k] float32


@runtime_checkable
class ChainRunner(Protocol):
    """A runner that draws several tokens one after another without the host's knowing of them."""

    def chain(
        self, tokens: Sequence[int], start: int, uniforms: Sequence[float], sampling: Sampling, vocab: int
    ) -> Drawn:
        """Computes `tokens` into the rows from `start` on, and the tokens drawn behind them but the last.

        tokens: two of them. uniforms: [k], one for each draw.
        """
        ...


class WrappedRunner:
    """Another runner, for those that change a part of what it does."""

    def __init__(self, inner: Runner) -> None:
        # What asks for features has a model that has some.
        self._inner = cast(FeatureRunner, inner)
        self.window, self.takes_trees = inner.window, inner.takes_trees

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        return self._inner.forward(tokens, start, tail, parents)

    def fill(self, tokens: Sequence[int], start: int) -> Iterator[None]:
        return self._inner.fill(tokens, start)

    def move_rows(self, sources: Sequence[int], start: int) -> None:
        self._inner.move_rows(sources, start)

    def read_rows(self, start: int, end: int) -> Rows:
        return self._inner.read_rows(start, end)

    def write_rows(self, rows: Rows, start: int) -> None:
        self._inner.write_rows(rows, start)

    def keep_hidden(self) -> int:
        return self._inner.keep_hidden()

    def hidden(self, start: int, end: int) -> Tensor:
        return self._inner.hidden(start, end)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        return self._inner.embed(tokens)

    def reader(self, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return self._inner.reader(tokens)


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
