"""The place a suggestion goes to: what stands around the cursor, said in the few facts that the rules ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lsp_server.shape.languages import Language, Span
from lsp_server.shape.lexer import Frame, Lexed, lex

Kind = Literal["line", "statement", "block"]

_BEFORE, _AFTER = 1 << 15, 1 << 14  # characters that are read on each side of the cursor


@dataclass(frozen=True, slots=True)
class Place:
    """`line` is the cursor's line up to the cursor, `rest` what follows there, `below` the lines after that (with no
    white space at their ends). `open` is what is open at the cursor, outermost first; of it, the text may close the
    innermost `may_close`: the others are closed below. `pending` of those belong to the cursor's own line.

    `indent` is the indentation (columns) that the statement at the cursor has or should have.
    """

    language: Language
    line: str
    rest: str
    below: tuple[str, ...]
    above: tuple[str, ...]
    open: tuple[Frame, ...]
    may_close: int
    pending: int
    indent: int
    empty_body: bool  # a line above opens a body that has nothing yet
    kind: Kind

    @property
    def inside(self) -> Span | None:
        """The string or comment that the cursor is in."""
        return self.open[-1].span if self.open else None

    @property
    def blank(self) -> bool:
        """Whether nothing stands before the cursor in its line."""
        return not self.line.strip()


def place_of(prefix: str, suffix: str, language: Language, multiline: str) -> Place:
    """The place between `prefix` and `suffix`; `multiline` is the user's setting: auto, always or never."""
    before = prefix[-_BEFORE:]
    if len(prefix) > _BEFORE:
        before = before.partition("\n")[2] or before
    after = suffix[:_AFTER]
    lexed = lex(before, language)
    line, rest = before.rpartition("\n")[2], after.partition("\n")[0]
    above = before.split("\n")[:-1]
    code = lexed.code.split("\n")
    opener = _opener_above(code[:-1], language) if not line.strip() else None
    may_close, pending = _closable(before, after, lexed, language)
    indent = columns(line)
    if opener is not None:
        indent = max(indent, columns(opener) + 1)
    return Place(
        language=language,
        line=line,
        rest=rest,
        below=tuple(text.rstrip() for text in after.split("\n")[1:40]),
        above=tuple(text.rstrip() for text in above[-20:]),
        open=lexed.open,
        may_close=may_close,
        pending=pending,
        indent=indent,
        empty_body=opener is not None,
        kind=_kind(line, rest, multiline, lexed, language),
    )


def columns(line: str) -> int:
    """The width of a line's indentation; a tab counts to the next multiple of four."""
    width = 0
    for char in line:
        if char == "\t":
            width += 4 - width % 4
        elif char == " ":
            width += 1
        else:
            break
    return width


def _kind(line: str, rest: str, multiline: str, lexed: Lexed, language: Language) -> Kind:
    if multiline == "never":
        return "line"
    if multiline == "auto":
        inside = lexed.open[-1].span if lexed.open else None
        if inside is not None and not inside.multiline:
            return "line"
        if rest.strip() and not _opens_body(lexed.code.rpartition("\n")[2], rest, language):
            return "line"
    return "block" if not line.strip() or rest.strip() else "statement"


_BODY = re.compile(
    r"(?:\)|=>|\b(?:else|do|try|finally|loop|unsafe)"
    r"|\b(?:class|struct|interface|enum|impl|trait|namespace)\b.*)\s*\{\s*\Z"
)


def _opens_body(code: str, rest: str, language: Language) -> bool:
    """Whether the cursor is between the braces of an empty body: `{|}`."""
    return language.blocks == "braces" and rest.strip()[0] == "}" and _BODY.search(code) is not None


def _opener_above(code: list[str], language: Language) -> str | None:
    """The line above the cursor, if a body comes after it."""
    for line in reversed(code):
        if line.strip(" \t\0"):
            opens = language.opener is not None and language.opener.search(line.rstrip(" \t\0"))
            return line if opens else None
    return None


def _closable(before: str, after: str, lexed: Lexed, language: Language) -> tuple[int, int]:
    """How many of the innermost open things the document does not close itself, and how many of the cursor's line."""
    line_start = before.rfind("\n") + 1
    closers = [_Closer(after, at) for at in lex(after, language, lexed.open).stray]
    whole = len(after) < _AFTER
    same_line = sum(frame.at >= line_start for frame in lexed.open)
    closing_it = 0
    for closer in closers:
        if closer.line_start and closer.indent < columns(before[line_start:]):
            break
        closing_it += 1
    pending = max(0, same_line - closing_it)
    if pending:
        return pending, pending
    count = 0
    for frame in reversed(lexed.open):
        if closers and _closes(closers[0], frame, before):
            return count, 0
        if not closers and not whole:
            return count, 0
        count += 1
    return count, 0


class _Closer:
    def __init__(self, text: str, at: int) -> None:
        line = text[text.rfind("\n", 0, at) + 1 : at]
        self.char = text[at]
        self.line_start = "\n" in text[:at] and not line.strip()
        self.indent = columns(line)


def _closes(closer: _Closer, frame: Frame, before: str) -> bool:
    if not frame.closes.startswith(closer.char):
        return False
    opened = before[before.rfind("\n", 0, frame.at) + 1 :]
    return not (closer.line_start and closer.indent < columns(opened.partition("\n")[0]))
