"""Reading again what was read a keystroke ago: the lines before the cursor's, and what stands behind it.

Says what the lexer says. A line that has ended was read for good, but for what may reach over its end: tags, and the
words that begin here documents. Languages with those are read anew.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from lsp_server.shape.languages import Language
from lsp_server.shape.lexer import Frame, Lexed, Lines, lex

_KEPT = 128  # texts; each takes the five-fold of what is read of it, 16,000 characters at the most
_BEGINNING = 2000  # characters that a text is found again by; shorter ones are read in less than a millisecond


def lex_before(text: str, language: Language, open_before: Sequence[Frame] = ()) -> Lexed:
    """As `lex`: of a text that grows, and changes, near its end."""
    if len(text) < _BEGINNING or language.blocks == "tags" or language.heredoc is not None:
        return lex(text, language, open_before)
    return _kept(text[:_BEGINNING], language, tuple(open_before)).lex(text)


class _Kept:
    """The latest text that began in one way, read up to its last line end."""

    def __init__(self, language: Language, open_before: Sequence[Frame]) -> None:
        self._nothing = self._lines = Lines(language, open_before)

    def lex(self, text: str) -> Lexed:
        lines = self._lines if text.startswith(self._lines.text) else self._nothing
        self._lines = lines.extended(text)
        return self._lines.lexed(text)


@functools.lru_cache(_KEPT)
def _kept(beginning: str, language: Language, open_before: tuple[Frame, ...]) -> _Kept:
    return _Kept(language, open_before)


lex_after = functools.lru_cache(_KEPT)(lex)  # the text behind the cursor stays as it is while somebody types
