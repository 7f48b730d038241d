"""What of a text is code: brackets that count, strings and comments that hide them. Knows no rule and no grammar.

Reads from left to right and never looks ahead for the end of a string, so that what it says of a text stays true when
the text grows: a suggestion is read while it is being written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lsp_server.shape.languages import Language, Span

CLOSER = {"(": ")", "[": "]", "{": "}"}
_REGEX_BEFORE = re.compile(
    r"(?:[(,=:\[!&|?{};~^+\-*%<>]|\b(?:return|typeof|case|in|of|when|if|unless|and|or))\s*\Z|^\s*\Z"
)

_REGEX = Span("/", "/")


class Frame(NamedTuple):
    """Something open: a bracket or a stretch of string or comment, at the offset `at` of its text (-1: before it)."""

    opens: str
    closes: str
    at: int
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Lexed:
    """A text read. `code` is as long as the text, with strings and comments blanked (`\\0`), line ends kept.

    `stray` are the offsets of what closes nothing that the text opened: brackets, and the ends of strings. `open` is
    what is open at the end, outermost first, and `depths[offset of a \\n]` how much was open there.
    """

    code: str
    open: tuple[Frame, ...]
    stray: tuple[int, ...]
    depths: dict[int, int]

    @property
    def inside(self) -> Span | None:
        """The string or comment that the text ends in."""
        return self.open[-1].span if self.open else None


@functools.cache
def _tokens(language: Language) -> re.Pattern[str]:
    parts = [f"(?P<s{number}>{span.opens})" for number, span in enumerate(language.spans)]
    if language.heredoc is not None:
        parts.insert(0, f"(?P<heredoc>{_renamed(language.heredoc.pattern)})")
    if language.regex:
        parts.append("(?P<regex>/)")
    brackets = "".join(re.escape(char) for char in language.brackets)
    parts.append(rf"(?P<char>\\?[\n{brackets}])")
    return re.compile("|".join(parts), re.MULTILINE)


def _renamed(heredoc: str) -> str:
    """The pattern's groups by name: others stand before them."""
    return heredoc.replace("(['", "(?P<quote>['", 1).replace("([A", "(?P<tag>[A", 1).replace(r"\1", "(?P=quote)")


@functools.cache
def _within(span: Span) -> re.Pattern[str]:
    parts = [r"\\(?s:.)"] if span.escape else []
    parts += [re.escape(span.closes)] + ([re.escape(span.hole)] if span.hole else [])
    return re.compile("|".join([*parts, r"\n"]))


def lex(text: str, language: Language, open_before: Sequence[Frame] = ()) -> Lexed:
    """Reads a text that begins within `open_before`, outermost first."""
    return _Reader(text, language, open_before).run()


class _Reader:
    def __init__(self, text: str, language: Language, open_before: Sequence[Frame]) -> None:
        self._text = text
        self._language = language
        self._tokens = _tokens(language)
        self._open: list[Frame] = [frame._replace(at=-1) for frame in open_before]
        self._stray: list[int] = []
        self._depths: dict[int, int] = {}
        self._tags: list[str] = []  # of here documents that begin with the next line
        self._code: list[str] = []
        self._at = 0

    def run(self) -> Lexed:
        while self._at < len(self._text):
            span = self._open[-1].span if self._open else None
            if span is None:
                self._read_code()
            else:
                self._read_span(span)
        return Lexed("".join(self._code), tuple(self._open), tuple(self._stray), self._depths)

    def _take(self, until: int, hidden: bool) -> None:
        piece = self._text[self._at : until]
        self._code.append(re.sub(r"[^\n]", "\0", piece) if hidden else piece)
        self._at = until

    def _read_code(self) -> None:
        match = self._tokens.search(self._text, self._at)
        if match is None:
            return self._take(len(self._text), False)
        kind = match.lastgroup or ""
        self._take(match.start(), False)
        if kind == "tag" or kind == "quote" or kind == "heredoc":
            self._tags.append(match["tag"])
            return self._take(match.end(), False)
        if kind == "regex":
            return self._slash(match)
        if kind == "char":
            return self._char(match)
        span = self._language.spans[int(kind[1:])]
        self._open.append(Frame(match.group(), span.closes, match.start(), span))
        return self._take(match.end(), True)

    def _slash(self, match: re.Match[str]) -> None:
        line = "".join(self._code[-8:]).rpartition("\n")[2]
        if _REGEX_BEFORE.search(line):
            self._open.append(Frame("/", "/", match.start(), _REGEX))
            return self._take(match.end(), True)
        return self._take(match.end(), False)

    def _char(self, match: re.Match[str]) -> None:
        char, at = match.group()[-1], match.end() - 1
        self._take(match.end(), False)
        if char == "\n":
            self._depths[at] = len(self._open)
            if self._tags:
                tag = self._tags.pop(0)
                self._open.append(Frame(tag, tag, at, Span("", tag, multiline=True, escape=False)))
        elif char in CLOSER:
            self._open.append(Frame(char, CLOSER[char], at))
        elif self._open and self._open[-1].closes == char:
            self._close(at)
        elif not any(frame.closes == char and frame.at >= 0 for frame in self._open):
            self._stray.append(at)

    def _close(self, at: int) -> None:
        if self._open.pop().at < 0:
            self._stray.append(at)

    def _read_span(self, span: Span) -> None:
        frame = self._open[-1]
        if span.opens == "":
            return self._read_heredoc(frame)
        match = _within(span).search(self._text, self._at)
        if match is None:
            return self._take(len(self._text), True)
        found = match.group()
        if found == "\n" and found != span.closes:
            self._take(match.end(), True)
            self._depths[match.start()] = len(self._open)
            if not span.multiline:
                self._open.pop()
                self._depths[match.start()] = len(self._open)
            return None
        if found == "\n":  # the end of a comment's line is a line end as any
            self._open.pop()
            return self._take(match.start(), True)
        self._take(match.end(), True)
        if span.hole and found == span.hole:
            self._open.append(Frame(found[-1], CLOSER[found[-1]], match.end() - 1))
        elif found == span.closes:
            self._close(match.start())
        return None

    def _read_heredoc(self, frame: Frame) -> None:
        end = self._text.find("\n", self._at)
        line = self._text[self._at :] if end < 0 else self._text[self._at : end]
        ended = end >= 0 and line.strip().rstrip(";,)") == frame.closes
        if ended:
            self._open.pop()
            return self._take(end, True)
        if end >= 0:
            self._depths[end] = len(self._open)
        return self._take(len(self._text) if end < 0 else end + 1, True)
