"""What of a text is code: brackets that count, strings and comments that hide them. Knows no rule and no grammar.

Reads from left to right and never looks ahead for the end of a string, so that what it says of a text stays true when
the text grows: a suggestion is read while it is being written.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lsp_server.shape.languages import Language, Span

CLOSER = {"(": ")", "[": "]", "{": "}"}
_REGEX_BEFORE = re.compile(
    r"(?:[(,=:\[!&|?{;~^+\-*%]|\b(?:return|typeof|case|in|of|when|if|unless|and|or))\s*\Z|^\s*\Z"
)

_REGEX, _CLASS = Span("/", "/"), Span("[", "]")


class Frame(NamedTuple):
    """Something open: a bracket or a stretch of string or comment, at the offset `at` of its text (-1: before it)."""

    opens: str
    closes: str
    at: int
    span: Span | None = None


class Stray(NamedTuple):
    """Something that ends, `closes`, at the offset `at`, and did not begin in the text; `fits` if before it."""

    at: int
    closes: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Lexed:
    """A text read. `code` is as long as the text, with strings and comments blanked (`\\0`), line ends kept.

    `stray` is what closes nothing that the text opened: brackets, tags and the ends of strings. `open` is what is open
    at the end, outermost first, and `depths[offset of a \\n]` how much was open there.
    """

    code: str
    open: tuple[Frame, ...]
    stray: tuple[Stray, ...]
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
        parts.append("(?P<regex>/(?!>)(?<!</))")  # and not of a tag
    if language.blocks == "tags":
        parts.append(rf"(?P<element>{_ELEMENT})")
    brackets = "".join(re.escape(char) for char in language.brackets)
    parts.append(rf"(?P<char>[\n{brackets}])")
    return re.compile("|".join(parts))


_ELEMENT = r"<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*)(?:[^<>\"'/]|/(?!>)|\"[^\"]*\"|'[^']*')*(?P<empty>/?)>"
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)


@functools.cache
def _first(language: Language) -> re.Pattern[str]:
    """The characters that a token may begin with: looking for one of a set is fast."""
    firsts = {span.opens.lstrip("\\")[0] for span in language.spans} | set(language.brackets)
    firsts |= ({"/"} if language.regex else set()) | ({"<"} if language.heredoc or language.blocks == "tags" else set())
    return re.compile("[\n" + "".join(re.escape(char) for char in sorted(firsts)) + "]")


def _renamed(heredoc: str) -> str:
    """The pattern's groups by name: others stand before them."""
    return heredoc.replace("(['", "(?P<quote>['", 1).replace("([A", "(?P<tag>[A", 1).replace(r"\1", "(?P=quote)")


@functools.cache
def _within(span: Span) -> re.Pattern[str]:
    parts = [r"\\(?s:.)"] if span.escape else []
    parts += [re.escape(span.closes)] + ([re.escape(span.hole)] if span.hole else [])
    parts += [r"\["] if span is _REGEX else []  # of a class, in which a slash is itself
    return re.compile("|".join([*parts, r"\n"]))


def lex(text: str, language: Language, open_before: Sequence[Frame] = ()) -> Lexed:
    """Reads a text that begins within `open_before`, outermost first."""
    return _Reader(text, language, open_before).run()


class Lines:
    """Whole lines of a text that begins within `open_before`, read; none at first. None of it changes."""

    def __init__(self, language: Language, open_before: Sequence[Frame] = ()) -> None:
        self.text = ""
        self._reader = _Reader("", language, open_before)

    def extended(self, text: str) -> Lines:
        """These lines and those that follow them in `text`."""
        longer = copy.copy(self)
        longer.text = text[: text.rfind("\n") + 1]
        longer._reader = self._reader.on(longer.text)
        longer._reader.read()
        return longer

    def lexed(self, text: str) -> Lexed:
        """All of `text`, which begins with these lines."""
        return self._reader.on(text).run()


class _Reader:
    def __init__(self, text: str, language: Language, open_before: Sequence[Frame]) -> None:
        self._text = text
        self._language = language
        self._tokens = _tokens(language)
        self._first = _first(language)
        self._open: list[Frame] = [frame._replace(at=-1) for frame in open_before]
        self._stray: list[Stray] = []
        self._depths: dict[int, int] = {}
        self._tags: list[str] = []  # of here documents that begin with the next line
        self._code: list[str] = []
        self._at = 0

    def on(self, text: str) -> _Reader:
        """A reader of a text that begins with what this one has read, there."""
        other = copy.copy(self)
        other._text = text
        other._open, other._stray, other._tags = [*self._open], [*self._stray], [*self._tags]
        other._depths, other._code = {**self._depths}, ["".join(self._code)]
        return other

    def run(self) -> Lexed:
        self.read()
        return Lexed("".join(self._code), tuple(self._open), tuple(self._stray), self._depths)

    def read(self) -> None:
        while self._at < len(self._text):
            span = self._open[-1].span if self._open else None
            if span is None:
                self._read_code()
            else:
                self._read_span(span)

    def _take(self, until: int, hidden: bool) -> None:
        piece = self._text[self._at : until]
        self._code.append(re.sub(r"[^\n]", "\0", piece) if hidden else piece)
        self._at = until

    def _read_code(self) -> None:
        first = self._first.search(self._text, self._at)
        if first is None:
            return self._take(len(self._text), False)
        match = self._tokens.match(self._text, first.start())
        if match is None:
            return self._take(first.end(), False)
        kind = match.lastgroup or ""
        self._take(match.start(), False)
        if kind == "tag" or kind == "quote" or kind == "heredoc":
            self._tags.append(match["tag"])
            return self._take(match.end(), False)
        if kind in ("element", "slash", "name", "empty"):
            return self._tag(match)
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
        elif char not in self._language.alone and not self._opened(char):
            self._stray.append(Stray(at, char, fits=False))

    def _opened(self, closes: str) -> bool:
        return any(frame.closes == closes and frame.at >= 0 for frame in self._open)

    def _tag(self, match: re.Match[str]) -> None:
        name, at = match["name"].lower(), match.start()
        self._take(match.end(), False)
        if not match["slash"]:
            if not match["empty"] and name not in _VOID:
                self._open.append(Frame(name, name, at))
            return
        own = [number for number, frame in enumerate(self._open) if frame.closes == name and frame.at >= 0]
        if own:
            del self._open[own[-1] :]  # with what need not be ended, as a list's items
        elif self._open and self._open[-1].closes == name:
            self._close(at)
        else:
            self._stray.append(Stray(at, name, fits=False))

    def _close(self, at: int) -> None:
        frame = self._open.pop()
        if frame.at < 0:
            self._stray.append(Stray(at, frame.closes, fits=True))

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
            while self._open and (top := self._open[-1].span) is not None and not top.multiline:
                self._open.pop()
            self._depths[match.start()] = len(self._open)
            return None
        if found == "\n":  # the end of a comment's line is a line end as any
            self._open.pop()
            return self._take(match.start(), True)
        self._take(match.end(), True)
        if span.hole and found == span.hole:
            self._open.append(Frame(found[-1], CLOSER[found[-1]], match.end() - 1))
        elif span is _REGEX and found == "[":
            self._open.append(Frame("[", "]", match.start(), _CLASS))
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
