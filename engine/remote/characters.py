"""A tokenizer for prompts that are sent as text: each character is a token, and each marker of the model's is one.

So one PromptBuilder lays out prompts for both kinds of servers, those that take ids and those that take text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from engine.prompt import FAMILIES

_FIRST_MARKER = 0x110000  # behind the last character
_SPACE = "▁"  # how SentencePiece writes one in a marker's name

# Whatever a model might take for a marker: those of all families, and what looks like one.
_NAMES = {name.lstrip(_SPACE) for family in FAMILIES for name in family.markers}
_MARKERS = re.compile(
    "|".join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))
    + r"|<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>"
)


class CharacterTokenizer:
    """What PromptBuilder needs of a tokenizer. `markers` are those that the server's model has."""

    eos_token_id: int | None = None
    all_special_tokens: Sequence[str] = ()
    init_kwargs: Mapping[str, object] = {}

    def __init__(self, markers: Collection[str]) -> None:
        self.markers = {name: _FIRST_MARKER + index for index, name in enumerate(sorted(markers))}
        self._names = {token: name for name, token in self.markers.items()}

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Code points; a marker's name is characters like any others."""
        return list(map(ord, text))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(self._name(token) if token >= _FIRST_MARKER else chr(token) for token in token_ids)

    def get_vocab(self) -> dict[str, int]:
        return self.markers

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def pieces(self, token_ids: Sequence[int]) -> Iterator[tuple[bool, str]]:
        """The prompt as markers (True) and texts between them (False), in order."""
        for is_marker, group in groupby(token_ids, lambda token: token >= _FIRST_MARKER):
            if is_marker:
                yield from ((True, self._name(token)) for token in group)
            else:
                yield False, "".join(map(chr, group))

    def _name(self, token: int) -> str:
        return self._names[token].replace(_SPACE, " ")


def looks_like_a_marker(text: str) -> bool:
    """Whether a tokenizer that reads markers in text might find one in it."""
    return _MARKERS.search(text) is not None


def cut_markers(text: str) -> list[str]:
    """The text in parts, none of which holds a whole marker."""
    parts, start = list[str](), 0
    while match := _MARKERS.search(text, start):
        parts.append(text[start : match.start() + 1])
        start = match.start() + 1
    return [part for part in (*parts, text[start:]) if part]


def defused(text: str) -> str:
    """The text with a space behind the first character of whatever looks like a marker: the least change that makes it
    ordinary text to any tokenizer."""
    return " ".join(cut_markers(text))
