"""A tokenizer for prompts that are sent as text: each character is a token, and each marker of the model's is one.

So one PromptBuilder lays out prompts for both kinds of servers, those that take ids and those that take text.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence

from engine.prompt import FAMILIES

_FIRST_MARKER = 0x110000  # behind the last character
_UINT32, _SIZE = next((code, 4) for code in "IL" if array(code).itemsize == 4)
_UTF_32, _ANY = f"utf-32-{sys.byteorder[0]}e", "surrogatepass"  # half a pair is no character, but JSON may hold it
# The half of a marker's code that no character has: those end with 0x10FFFF.
_HIGH_AT = 2 if sys.byteorder == "little" else 0
_HIGH = _FIRST_MARKER.to_bytes(_SIZE, sys.byteorder)[_HIGH_AT : _HIGH_AT + 2]
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
        return array(_UINT32, text.encode(_UTF_32, _ANY)).tolist()

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(text for _, text in self.pieces(token_ids))

    def get_vocab(self) -> dict[str, int]:
        return self.markers

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def pieces(self, token_ids: Sequence[int]) -> Iterator[tuple[bool, str]]:
        """The prompt as markers (True) and texts between them (False), in order."""
        codes = array(_UINT32, token_ids).tobytes()  # a prompt of 12,000 characters takes 0.1 ms so, one by one 2 ms
        start = 0
        for at in _marker_places(codes):
            if at > start:
                yield False, codes[start:at].decode(_UTF_32, _ANY)
            start = at + _SIZE
            yield True, self._name(int.from_bytes(codes[at:start], sys.byteorder))
        if start < len(codes):
            yield False, codes[start:].decode(_UTF_32, _ANY)

    def _name(self, token: int) -> str:
        return self._names[token].replace(_SPACE, " ")


def _marker_places(codes: bytes) -> Iterator[int]:
    """Offsets in bytes, in order."""
    at = codes.find(_HIGH)
    while at >= 0:
        if at % _SIZE == _HIGH_AT:  # and not across two characters
            yield at - _HIGH_AT
        at = codes.find(_HIGH, at + 1)


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
