"""What a drafter learns from: holes in the user's own files, as prompts with their middles, each a function of its
number. So a training that goes on sees what it would have seen.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from engine.holes import some_hole
from engine.loading import LoadedPair
from engine.request import CompletionRequest

_LENGTH = 256  # tokens of an example; no more than the target's window
_MIDDLE = 96  # of its middle; no more than a third
_SHORTEST = 200  # characters of a file
_TRIES = 20
_COUNTED, _COUNTED_CHARACTERS = 500, 20_000  # files, and of each, to see which tokens are common


class Examples:
    """Raises ValueError if there is nothing to learn from. texts: of files, by their names."""

    def __init__(self, pair: LoadedPair, texts: Mapping[str, str], seed: int = 0) -> None:
        self._files = sorted((name, text) for name, text in texts.items() if len(text) >= _SHORTEST)
        if not self._files:
            why = f"none of its {len(texts)} source files is long enough" if texts else "no source files can be read"
            raise ValueError(f"{why}; name a folder with more of them")
        # Large files count for less than their size: they repeat themselves.
        self._weights = list(accumulate(len(text) ** 0.5 for _, text in self._files))
        self._pair = pair
        self._length = min(_LENGTH, pair.target.window)
        self._seed = seed

    @property
    def files(self) -> int:
        return len(self._files)

    @property
    def fingerprint(self) -> str:
        """Of all the texts."""
        digest = hashlib.sha256()
        for name, text in self._files:
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()

    def tokens(self, number: int) -> list[int]:
        """Of one example: a prompt, its middle and an end token."""
        rng = random.Random(f"{self._seed}:{number}")
        longest = min(_MIDDLE, self._length // 3)
        for _ in range(_TRIES):
            name, text = self._files[bisect(self._weights, rng.random() * self._weights[-1])]
            hole = some_hole(name, text, rng)
            if hole is None:
                continue
            middle = [*self._pair.prompts.plain(hole.middle, continued=True)[:longest], *self._end]
            cut = rng.choice((300, 600, 900)), rng.choice((0, 100, 200, 400))
            request = CompletionRequest(
                hole.prefix[-cut[0] :], hole.suffix[: cut[1]], name if rng.random() < 0.5 else ""
            )
            return [*self._pair.prompts.build(request, self._length - len(middle)).ids, *middle]
        start = rng.randrange(max(len(text) - 600, 1))
        return self._pair.prompts.plain(text[start : start + 600])[: self._length]

    def vocabulary(self, count: int) -> list[int]:
        """The `count` commonest ids of the texts, in order, with the end tokens."""
        counts, rng = Counter[int](), random.Random(self._seed)
        for _, text in rng.sample(self._files, min(len(self._files), _COUNTED)):
            counts.update(self._pair.prompts.plain(text[:_COUNTED_CHARACTERS]))
        ends = self._end[:count]
        common = [token for token, _ in counts.most_common() if token not in ends]
        return sorted([*ends, *common[: count - len(ends)]])

    @property
    def _end(self) -> list[int]:
        end = self._pair.tokenizer.eos_token_id
        return [] if end is None or end >= self._pair.target.vocab else [end]
