"""The place a suggestion goes to: what stands around the cursor, said in the few facts that the rules ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lsp_server.shape.languages import Language
from lsp_server.shape.lexer import Frame, Lexed
from lsp_server.shape.nesting import closable, columns, indent_at
from lsp_server.shape.parts import TAG_BEGUN, open_at, part_of
from lsp_server.shape.rereading import lex_before

Kind = Literal["line", "statement", "block"]

_BEFORE, _AFTER = 1 << 14, 1 << 13  # characters that are read on each side of the cursor


@dataclass(frozen=True, slots=True)
class Place:
    """`line` is the cursor's line up to the cursor, `rest` what follows there, `below` the lines after that (with no
    white space at their ends). `open` is what is open at the cursor, outermost first; of it, the text may close the
    innermost `may_close`: the others are closed below. `pending` of those belong to the cursor's own line.

    `base` is the indentation (columns) of the line that the outermost of those stands in, `indent` the one that the
    statement at the cursor has or should have.
    """

    language: Language
    line: str
    rest: str
    below: tuple[str, ...]
    open: tuple[Frame, ...]
    may_close: int
    pending: int
    base: int
    indent: int
    empty_body: bool  # a line above opens a body that has nothing yet
    kind: Kind

    @property
    def blank(self) -> bool:
        """Whether nothing stands before the cursor in its line."""
        return not self.line.strip()


def place_of(prefix: str, suffix: str, language: Language, multiline: str) -> Place:
    """The place between `prefix` and `suffix`; `multiline` is the user's setting: auto, always or never."""
    language, prefix, suffix = part_of(language, prefix, suffix)
    before, after = prefix[-_BEFORE:], suffix[:_AFTER]
    if len(prefix) > _BEFORE:
        before = before.partition("\n")[2] or before
    lexed = lex_before(before, language, open_at(prefix[: len(prefix) - len(before)], language))
    inside = lexed.inside
    line, rest = before.rpartition("\n")[2], after.partition("\n")[0]
    code = lexed.code.split("\n")
    opener = None
    if not line.strip() and inside is None:
        opener = _opener_above(code[:-1], language)
    open_ = lexed.open
    if language.blocks == "tags" and (tag := TAG_BEGUN.search(before)) is not None:
        name = tag[1].lower()
        open_ = (*[f for f in open_ if f.at < tag.start()], Frame(name, name, tag.start()), *open_[-1:][: bool(inside)])
    may_close, pending = closable(before, after, open_, language, len(suffix) <= _AFTER)
    base = indent_at(before, open_[-may_close].at) if may_close else 0
    indent = columns(line)
    if opener is not None and language.name == "yaml":
        opener = opener if indent > columns(opener) else None  # a list may stand right below its key
    if opener is not None:
        indent = max(indent, columns(opener) + 1)
    return Place(
        language=language,
        line=line,
        rest=rest,
        below=tuple(text.rstrip() for text in after.split("\n")[1:40]),
        open=open_,
        may_close=may_close,
        pending=pending,
        base=base,
        indent=indent,
        empty_body=opener is not None,
        kind=_kind(line, rest, multiline, lexed, language),
    )


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
    r"(?:\)[^{}()=]*|=>|\b(?:else|do|try|finally|loop|unsafe)"
    r"|\b(?:class|struct|interface|enum|impl|trait|namespace)\b.*)\s*\{\s*\Z"
)


def _opens_body(code: str, rest: str, language: Language) -> bool:
    """Whether the cursor is between the braces of an empty body: `{|}`."""
    if language.blocks != "braces" or rest.strip()[0] != "}":
        return False
    return language.name == "css" or _BODY.search(code) is not None


def _opener_above(code: list[str], language: Language) -> str | None:
    """The first line of the statement above the cursor, if a body comes after it."""
    lines = [line.rstrip(" \t\0") for line in code]
    number = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip(" \t\0")), None)
    if number is None or language.opener is None or not language.opener.search(lines[number]):
        return None
    depth = 0
    for line in lines[number::-1]:
        depth += sum(char in ")]" for char in line) - sum(char in "([" for char in line)
        if depth <= 0:
            return line
    return lines[number]
