"""Users' text as token ids, in which a marker is ordinary text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

_SPACE = "▁"  # how SentencePiece writes a space


class Tokenizer(Protocol):
    """What the engine uses of a transformers tokenizer."""

    init_kwargs: Mapping[str, object]
    eos_token_id: int | None
    all_special_tokens: Sequence[str]

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...
    def get_vocab(self) -> dict[str, int]: ...
    def get_added_vocab(self) -> dict[str, int]: ...


class PlainText:
    """Encodes text so that no marker can come of it: no part that is encoded holds a whole one.

    A tokenizer's own `split_special_tokens` does not do: Qwen's and Granite's FIM tokens are added tokens that are not
    flagged as special. `reserved` are the ids that text must never become.
    """

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        names = {name for name in (*markers, *tokenizer.all_special_tokens) if name in ids}
        unknown = getattr(tokenizer, "unk_token", None)  # comes of text by right, where there is no byte fallback
        self.reserved = frozenset(ids[name] for name in names if name != unknown)
        split = {name for name in names | set(tokenizer.get_added_vocab()) if len(name) > 1 and name.strip()}
        # A space, written by the user or put before the text, makes `<PRE>` CodeLlama's `▁<PRE>`.
        split |= {bare for name in split if len(bare := name.lstrip(_SPACE)) > 1}
        self._markers = re.compile("|".join(map(re.escape, sorted(split, key=len, reverse=True))) or r"(?!)")
        letter, line_end = (tokenizer.encode(text, add_special_tokens=False) for text in ("a", "\n"))
        whole = tokenizer.encode("a", add_special_tokens=True)
        self.start = whole[: whole.index(letter[0])]  # what the tokenizer puts before every text: BOS or nothing
        # SentencePiece writes a space in front of every text, also of one that goes on after a marker.
        after_line_end = tokenizer.encode("\na", add_special_tokens=False)[len(line_end) :]
        self._line_end = line_end if after_line_end != letter else []

    def encode(self, text: str, continued: bool = False) -> list[int]:
        """The ids of `text`; `continued`: it goes on after a marker or in a line, and must not get a leading space."""
        ids: list[int] = []
        start = 0
        while match := self._markers.search(text, start):
            ids += self._encode(text[start : match.start() + 1], continued or start > 0)
            start = match.start() + 1
        ids += self._encode(text[start:], continued or start > 0)
        assert self.reserved.isdisjoint(ids), "a marker came of plain text"
        return ids

    def _encode(self, text: str, continued: bool) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if not continued or not self._line_end:
            return ids
        # As CodeLlama and Mistral encode a suffix: behind a text of known ids, which are then taken off.
        anchored = self._tokenizer.encode("\n" + text, add_special_tokens=False)
        known = len(self._line_end)
        return anchored[known:] if anchored[:known] == self._line_end else ids
