"""A causal language model whose logits are a pure function of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from engine.runners import Runner


class CachedModel:
    """Logits as a pure function of tokens. Invariant: the runner's first `len(cached)` rows belong to `cached`.

    A call keeps the longest common prefix of `cached` and its own tokens and computes the rest. Rejecting a draft,
    following a keystroke and keeping a draft model in step are all "the next call has other tokens": no caller rolls
    anything back. `vocab` is the number of ids the tokenizer knows: rows of a padded embedding beyond it do not exist
    for the caller.
    """

    def __init__(self, runner: Runner, vocab: int) -> None:
        self.runner = runner
        self.vocab = vocab
        self.cached: list[int] = []

    @property
    def window(self) -> int:
        """The most tokens that the model can see."""
        return self.runner.window

    def shared_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached already."""
        shared = 0
        for ours, theirs in zip(self.cached, tokens, strict=False):
            if ours != theirs:
                break
            shared += 1
        return shared

    def logits(self, tokens: Sequence[int], tail: int = 1) -> Tensor:
        """Logits after each of the last `tail` of `tokens`: [tail, vocab], on the model's device and in its type.

        tokens: ids below the size of the embedding, 1 ≤ tail ≤ len(tokens) ≤ window.
        """
        assert 1 <= tail <= len(tokens) <= self.window, (tail, len(tokens), self.window)
        return self._extend(tokens, min(self.shared_prefix(tokens), len(tokens) - tail), tail)

    def prefill(self, tokens: Sequence[int], chunk: int) -> Iterator[None]:
        """Computes `tokens` in pieces until at most one `chunk` is left, pausing after each so that it can be left."""
        done = self.shared_prefix(tokens)
        while len(tokens) - done > chunk:
            self._extend(tokens[: done + chunk], done, 1)
            done += chunk
            yield

    def _extend(self, tokens: Sequence[int], keep: int, tail: int) -> Tensor:
        self.cached = list(tokens[:keep])  # true even if the forward raises half way
        logits = self.runner.forward(tokens[keep:], keep, tail)
        self.cached = list(tokens)
        return logits[:, : self.vocab]
