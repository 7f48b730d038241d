"""Models and a tokenizer small enough to be read: a table for the model, a character for a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch
from torch import Tensor

from engine.loading import LoadedPair
from engine.model import CachedModel
from engine.prompt import PromptBuilder
from engine.runners import Rows, Runner
from engine.speculation import ROOT

MARKERS = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
CHARACTERS = "abcdefghijklmnopqrstuvwxyz \n(){}"
VOCABULARY = len(MARKERS) + len(CHARACTERS)  # 37
END = 0  # <|endoftext|>

_STATES = 997


class TableRunner(Runner):
    """A model that looks its logits up by a hash of all the tokens so far, in a random table.

    Each row keeps the hash of its own past, as a row of keys and values does: a stale row shows in the logits.
    """

    def __init__(self, vocab: int = VOCABULARY, window: int = 4096, seed: int = 0, rows: int = 0) -> None:
        self.window = window
        self.takes_trees = True
        self.table = _random_table(rows or vocab, seed).clone()
        self.calls: list[tuple[int, int]] = []  # (width, start) of each forward
        self.fault: Exception | None = None  # raised once, half way through the next forward
        self._past: list[int] = []

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        assert start <= len(self._past), "a row is missing"
        assert start + len(tokens) <= self.window, "beyond the window"
        self.calls.append((len(tokens), start))
        del self._past[start:]
        before = [len(self._past) + index - 1 for index in range(len(tokens))]
        if parents is not None:
            plain = len(tokens) - len(parents)
            root = start + plain - 1
            before[plain:] = [root if parent == ROOT else start + plain + parent for parent in parents]
        for index, (token, row) in enumerate(zip(tokens, before, strict=True)):
            if self.fault is not None and index >= len(tokens) // 2:
                fault, self.fault = self.fault, None
                raise fault
            self._past.append(_follow(self._past[row] if row >= 0 else 1, token))
        return self.table[self._past[-tail:]]

    def move_rows(self, sources: Sequence[int], start: int) -> None:
        self._past[start : start + len(sources)] = [self._past[source] for source in sources]

    def read_rows(self, start: int, end: int) -> Rows:
        assert end <= len(self._past), "a row is missing"
        return (torch.tensor(self._past[start:end])[:, None],)

    def write_rows(self, rows: Rows, start: int) -> None:
        assert start <= len(self._past), "a row is missing"
        self._past[start:] = rows[0][:, 0].tolist()

    def law(self, tokens: Iterable[int]) -> Tensor:
        """The logits after `tokens`, from nothing but them. [rows]"""
        state = 1
        for token in tokens:
            state = _follow(state, token)
        return self.table[state]

    def greedy(self, prompt: Sequence[int], count: int, vocab: int = VOCABULARY) -> list[int]:
        """The `count` likeliest tokens after `prompt`, one after another."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.law(tokens)[:vocab].argmax()))
        return tokens[len(prompt) :]


@cache
def _random_table(rows: int, seed: int) -> Tensor:
    return torch.randn(_STATES, rows, generator=torch.Generator().manual_seed(seed))


def _follow(state: int, token: int) -> int:
    return (state * 31 + token + 7) % _STATES


class ToyTokenizer:
    """One character, one token; the markers of the Qwen family. Any other character becomes `x`."""

    eos_token_id: int | None = END
    all_special_tokens = MARKERS

    def __init__(self, **init_kwargs: object) -> None:
        self.init_kwargs = init_kwargs
        self._ids = {text: index for index, text in enumerate([*MARKERS, *CHARACTERS])}
        self._texts = list(self._ids)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [self._ids.get(character, self._ids["x"]) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(self._texts[index] for index in token_ids)

    def get_vocab(self) -> dict[str, int]:
        return self._ids

    def get_added_vocab(self) -> dict[str, int]:
        return {name: self._ids[name] for name in MARKERS}


def toy_pair(target: TableRunner | None = None, draft: TableRunner | None = None, context: int = 1024) -> LoadedPair:
    """A pair whose target says letters only, unless one is given."""
    tokenizer = ToyTokenizer()
    if target is None:
        target = TableRunner()
        target.table[:, : len(MARKERS)] -= 100
    return LoadedPair(
        name="toy",
        device="cpu",
        dtype="float32",
        tokenizer=tokenizer,
        prompts=PromptBuilder(tokenizer),
        target=CachedModel(target, VOCABULARY),
        draft=None if draft is None else CachedModel(draft, VOCABULARY),
        drafter_name="none" if draft is None else "model",
        draft_length=3,
        policy=None,
        context=min(context, target.window),
    )
