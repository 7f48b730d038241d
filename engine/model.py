"""A causal language model whose logits are a pure function of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from engine.on_device import Behind, Guessed, Later
from engine.prefix_store import Shelf, common_prefix
from engine.request import Sampling
from engine.runners import ChainRunner, FeatureRunner, Runner
from engine.speculation import ROOT, Draft

_NO_TREE = Draft()
# New tokens that go into one forward with the first guesses. Of more, all but one are computed before, for that
# forward cannot be left half way: a prompt of 640 tokens takes 1 % longer.
_LEFT = 24
# Rows that are worth a place in the store, or a look into it: fewer are computed as fast.
_LEAST_KEPT = 32


class _Begun(NamedTuple):
    """A piece of a prompt that was left half way, and can be gone on with."""

    tokens: list[int]  # with all before it
    steps: Iterator[None]


def vocabulary_size(vocabulary: Mapping[str, int]) -> int:
    """One more than the highest id. Rows of a padded embedding beyond it are no tokens."""
    return max(vocabulary.values()) + 1


class CachedModel:
    """Logits as a pure function of tokens. Invariant: the runner's first `len(cached)` rows belong to `cached`, and
    the rows behind them to the guesses of the last call, if it had any.

    A call keeps the longest common prefix of what is there and its own tokens and computes the rest. Rejecting a
    draft, following a keystroke and keeping a draft model in step are all "the next call has other tokens": no caller
    rolls anything back or commits anything. What another document would overwrite goes to the shelf, if there is one,
    and comes back from there when it is asked for again. `vocab` is the number of ids the tokenizer knows: rows of a
    padded embedding beyond it do not exist for the caller.
    """

    def __init__(self, runner: Runner, vocab: int, shelf: Shelf | None = None) -> None:
        self.runner = runner
        self.shelf = shelf
        self.vocab = vocab
        self.cached: list[int] = []
        self._guesses = _NO_TREE
        self._begun: _Begun | None = None  # only rows behind the cached ones are touched by it

    @property
    def window(self) -> int:
        """The most tokens that the model can see."""
        return self.runner.window

    def shared_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached already, guesses of the last call that came true included."""
        known = len(self.cached)
        if list(tokens[:known]) == self.cached:  # within a completion always, and this compares in C
            known += self._commit_guesses(tokens[known:])
        else:
            known = common_prefix(self.cached, tokens)
        return known if self.shelf is None else self._switch(self.shelf, tokens, known)

    def logits(self, tokens: Sequence[int], tail: int = 1, guesses: Draft = _NO_TREE) -> Tensor:
        """Logits after each of the last `tail` of `tokens` and after each guess that continues them.

        tokens, guesses: ids below the size of the embedding; 1 ≤ tail ≤ len(tokens), and no more than `window` of
        both together. Returns [tail + len(guesses), vocab], on the model's device and in its type.
        """
        assert 1 <= tail <= len(tokens) <= self.window - len(guesses), (tail, len(tokens), len(guesses), self.window)
        keep = min(self.shared_prefix(tokens), len(tokens) - tail)
        return self._extend(tokens, keep, tail, guesses)

    def chain_length(self, tokens: Sequence[int], limit: int) -> int:
        """How many tokens `chain` can guess behind these, at most `limit`; 0 where it cannot."""
        if not isinstance(self.runner, ChainRunner) or len(tokens) < 2:
            return 0
        return min(limit, self.window + 1 - len(tokens))

    def chain(self, tokens: Sequence[int], uniforms: Sequence[float], sampling: Sampling) -> Draft:
        """The chain that this model draws behind `tokens`, as `engine.sampling.draw` does with one of `uniforms` for
        each guess, without the host's knowing of it; no more than `chain_length`. A guess of an argmax is certain.
        """
        runner, start = cast(ChainRunner, self.runner), len(tokens) - 2
        keep = min(self.shared_prefix(tokens), start)
        if keep < start:
            self._extend(tokens[:start], keep, 1, _NO_TREE)
        self.cached, self._guesses, self._begun = list(tokens[:start]), _NO_TREE, None
        drawn = runner.chain(tokens[start:], start, uniforms, sampling, self.vocab)
        guessed, count = Guessed(drawn.tokens, drawn.confidences, self.vocab), len(uniforms)
        parents = tuple(range(ROOT, count - 1))
        probs = None if sampling.greedy else drawn.laws
        draft = Draft(guessed.tokens, parents, probs, guessed.confidences, forwards=count)
        self.cached = list(tokens)
        self._guesses = Draft(guessed.tokens[: count - 1], parents[: count - 1])  # the last one has no row
        return draft

    def prefill(self, tokens: Sequence[int], chunk: int) -> Iterator[None]:
        """Computes all but a few of `tokens` in pieces of at most `chunk`, pausing often so that it can be left.

        A piece that was left half way is gone on with if the next prompt has it, too.
        """
        done = self.shared_prefix(tokens)
        while len(tokens) - done > min(chunk, _LEFT):
            if self._begun is None or self._begun.tokens != list(tokens[: len(self._begun.tokens)]):
                end = min(done + chunk, len(tokens) - 1)
                self.cached, self._guesses = list(tokens[:done]), _NO_TREE
                self._begun = _Begun(list(tokens[:end]), self._fill(tokens[done:end], done))
            begun = self._begun
            try:
                for _ in begun.steps:
                    yield
            except Exception:
                self._begun = None
                raise
            self.cached, self._begun = begun.tokens, None
            done = len(self.cached)

    def _fill(self, new: Sequence[int], start: int) -> Iterator[None]:
        try:
            yield from self.runner.fill(new, start)
        except torch.OutOfMemoryError:
            self._give_back()
            yield from self.runner.fill(new, start)

    def hidden(self, tokens: Sequence[int], first: int) -> Tensor | None:
        """The last hidden states of `tokens` from index `first` on, [len(tokens) - first, size]; those of guesses that
        came true are of the forward that judged them. None if one is not computed yet. See `FeatureRunner`."""
        if self.shared_prefix(tokens) < len(tokens):
            return None
        return self.features.hidden(first, len(tokens))

    @property
    def features(self) -> FeatureRunner:
        """The runner, for those who know that it has features."""
        return cast(FeatureRunner, self.runner)

    def forget(self) -> None:
        """Empties the cache, the shelf with it."""
        self.cached, self._guesses, self._begun = [], _NO_TREE, None
        if self.shelf is not None:
            self.shelf.clear()

    def _extend(self, tokens: Sequence[int], keep: int, tail: int, guesses: Draft) -> Tensor:
        # True even if the forward raises half way.
        self.cached, self._guesses, self._begun = list(tokens[:keep]), _NO_TREE, None
        parents = None if guesses.is_chain else guesses.parents
        known = list(tokens[keep:])
        new = Behind(known, guesses.tokens) if isinstance(guesses.tokens, Later) else [*known, *guesses.tokens]
        try:
            logits = self.runner.forward(new, keep, tail + len(guesses), parents)
        except torch.OutOfMemoryError:  # another program took it: all rows before `keep` still stand
            self._give_back()
            logits = self.runner.forward(new, keep, tail + len(guesses), parents)
        self.cached, self._guesses = list(tokens), guesses
        return logits[:, : self.vocab]

    def _give_back(self) -> None:
        """Frees what is there for speed alone."""
        if self.shelf is not None:
            self.shelf.shrink()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _switch(self, shelf: Shelf, tokens: Sequence[int], known: int) -> int:
        """Puts what is there away if most of it is about to be lost, and takes out what the tokens share with more of
        what was put away; returns how many of them are cached then."""
        lost = len(self.cached) - known
        if lost >= _LEAST_KEPT and lost > len(self.cached) // 2:
            try:
                shelf.put(self.cached, self.runner.read_rows)
            except torch.OutOfMemoryError:
                self._give_back()
        if len(tokens) - known < _LEAST_KEPT:
            return known
        kept = shelf.match(tokens)
        if kept - known < _LEAST_KEPT:
            return known
        # True even if a copy fails half way.
        self.cached, self._guesses, self._begun = self.cached[:known], _NO_TREE, None
        for place, rows in shelf.rows(tokens, known, kept):
            self.runner.write_rows(rows, place)
        self.cached = list(tokens[:kept])
        return kept

    def _commit_guesses(self, tokens: Sequence[int]) -> int:
        """Makes the guessed path that `tokens` take part of the cache; returns its length."""
        path, node = list[int](), ROOT
        for token in tokens:
            node = next((child for child in self._guesses.children(node) if self._guesses.tokens[child] == token), ROOT)
            if node == ROOT:
                break
            path.append(node)
        if path:
            base = len(self.cached)
            self._guesses = _NO_TREE  # their rows are not theirs any more, even if the move fails half way
            if path != list(range(len(path))):  # a chain's rows stand in place already
                self.runner.move_rows([base + child for child in path], base)
            self.cached += tokens[: len(path)]
        return len(path)
