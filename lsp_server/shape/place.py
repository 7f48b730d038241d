"""The place a suggestion goes to: what stands around the cursor, said in the few facts that the rules ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lsp_server.shape.languages import Language, Span, language_of
from lsp_server.shape.lexer import Frame, Lexed, lex

Kind = Literal["line", "statement", "block"]

_BEFORE, _AFTER = 1 << 14, 1 << 13  # characters that are read on each side of the cursor


@dataclass(frozen=True, slots=True)
class Place:
    """`line` is the cursor's line up to the cursor, `rest` what follows there, `above` and `below` the lines around it
    (with no white space at their ends). `open` is what is open at the cursor, outermost first; of it, the text may
    close the innermost `may_close`: the others are closed below. `pending` of those belong to the cursor's own line.

    `base` is the indentation (columns) of the line that the outermost of those stands in, `indent` the one that the
    statement at the cursor has or should have.
    """

    language: Language
    line: str
    rest: str
    below: tuple[str, ...]
    above: tuple[str, ...]
    open: tuple[Frame, ...]
    may_close: int
    pending: int
    base: int
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
    language, prefix, suffix = part_of(language, prefix, suffix)
    before, after = prefix[-_BEFORE:], suffix[:_AFTER]
    if len(prefix) > _BEFORE:
        before = before.partition("\n")[2] or before
    lexed = lex(before, language, _open_at(prefix[: len(prefix) - len(before)], language))
    inside = lexed.inside
    line, rest = before.rpartition("\n")[2], after.partition("\n")[0]
    above = before.split("\n")[:-1]
    code = lexed.code.split("\n")
    opener = None
    if not line.strip() and inside is None:
        opener = _opener_above(code[:-1], language)
    open_ = lexed.open
    if language.blocks == "tags" and (tag := _TAG_BEGUN.search(before)) is not None:
        name = tag[1].lower()
        open_ = (*[f for f in open_ if f.at < tag.start()], Frame(name, name, tag.start()), *open_[-1:][: bool(inside)])
    may_close, pending = _closable(before, after, open_, language)
    base = indent_at(before, open_[-may_close].at) if may_close else 0
    indent = columns(line)
    if opener is not None:
        indent = max(indent, columns(opener) + 1)
    return Place(
        language=language,
        line=line,
        rest=rest,
        below=tuple(text.rstrip() for text in after.split("\n")[1:40]),
        above=tuple(text.rstrip() for text in above[-20:]),
        open=open_,
        may_close=may_close,
        pending=pending,
        base=base,
        indent=indent,
        empty_body=opener is not None,
        kind=_kind(line, rest, multiline, lexed, language),
    )


_TAG_BEGUN = re.compile(r"<([A-Za-z][\w:.-]*)[^<>]*\Z")
_PARTS = re.compile(r"<(script|style)\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+#-]*).*$", re.MULTILINE)


def part_of(language: Language, prefix: str, suffix: str) -> tuple[Language, str, str]:
    """In a page's script or style and in a fenced block, that language and what of the text is written in it."""
    if language.blocks == "tags":
        *_, last = [None, *_PARTS.finditer(prefix)]
        end = f"</{last[1].lower()}" if last is not None else ""
        if last is None or end in prefix[last.end() :].lower():
            return language, prefix, suffix
        inner = language_of("javascript" if end == "</script" else "css")
        return inner, prefix[last.end() :], suffix[: _found(suffix.lower(), end)]
    if language.name == "markdown":
        fences = list(_FENCE.finditer(prefix.rpartition("\n")[0]))
        if len(fences) % 2 == 0:
            return language, prefix, suffix
        close = _FENCE.search(suffix, suffix.find("\n") + 1)
        inner = language_of(fences[-1][1].lower(), f"x.{fences[-1][1].lower()}")
        return inner, prefix[fences[-1].end() + 1 :], suffix[: close.start() if close else len(suffix)]
    return language, prefix, suffix


def _found(text: str, what: str) -> int:
    at = text.find(what)
    return at if at >= 0 else len(text)


def _open_at(text: str, language: Language) -> tuple[Frame, ...]:
    """The string or comment of several lines that a long document's first part ends in, as counting tells."""
    for span in language.spans:
        opens = re.split(r"\(\?", span.opens)[0].replace("\\", "")
        if span.kind == "comment" and span.multiline and text.rfind(opens) > text.rfind(span.closes):
            return (Frame(opens, span.closes, 0, span),)
        if span.multiline and opens == span.closes and (len(opens) > 1 or opens == "`") and text.count(opens) % 2:
            return (Frame(opens, span.closes, 0, span),)
    return ()


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


def _closable(before: str, after: str, open_: tuple[Frame, ...], language: Language) -> tuple[int, int]:
    """How many of the innermost open things the document does not close itself, and how many of the cursor's line."""
    line_start = before.rfind("\n") + 1
    count, frames = 0, list(open_)
    if frames and frames[-1].span is not None and not _ends(frames[-1], after):
        count = 1
        frames.pop()
    closers = iter(_closers(after, language, frames))
    closer = next(closers, None)
    here = [frame for frame in reversed(frames) if frame.at >= line_start]
    closed = unclosed = 0
    for frame in here:
        if closer is not None and _closes(closer, frame, before):
            closer = next(closers, None)
            closed += 1
        elif closed and frame.closes != here[0].closes:
            break  # `{f(|}`: what ends the inner one may not be written, the outer one's end cannot be yet
        else:
            unclosed += 1
    pending = unclosed + (count if count and open_[-1].at >= line_start else 0)
    count += unclosed
    if closed:
        return count, pending
    for frame in frames[: len(frames) - len(here)][::-1]:
        left = _left(after, indent_at(before, frame.at)) if _in_lines(frame, language) else len(after)
        if left == len(after) and closer is None and left >= _AFTER:
            break  # it may be closed further below
        if closer is not None and closer.at < left and _closes(closer, frame, before):
            break
        count += 1
    return count, pending


def _in_lines(frame: Frame, language: Language) -> bool:
    """Whether what is in these brackets is indented deeper than the line that they begin in."""
    return frame.closes in (")", "]") or (frame.closes == "}" and language.blocks == "indent")


_CLOSING = re.compile(r"[)\]}]")


def _left(after: str, indent: int) -> int:
    """Where the first of the next lines begins that is indented no deeper than `indent` and begins with no bracket."""
    at = after.find("\n") + 1
    while 0 < at < len(after):
        end = _found(after[at:], "\n") + at
        line = after[at:end]
        if line.strip() and columns(line) <= indent and not _CLOSING.match(line.lstrip()):
            return at
        at = end + 1
    return len(after)


def _ends(frame: Frame, after: str) -> bool:
    """Whether the string or comment that the cursor is in ends below, as far as counting can tell."""
    span = frame.span
    assert span is not None
    line = after.partition("\n")[0]
    if not span.multiline or frame.closes in line:
        return frame.closes in line
    if span.kind == "comment":
        opening = frame.opens.strip()
        return -1 < after.find(frame.closes) < (after.find(opening) if opening in after else len(after))
    return after.count(frame.closes) % 2 == 1


class _Closer(NamedTuple):
    at: int
    closes: str
    line_start: bool  # of a later line
    indent: int


def _closers(after: str, language: Language, frames: list[Frame]) -> list[_Closer]:
    found = []
    for stray in lex(after, language, frames).stray:
        start = after.rfind("\n", 0, stray.at) + 1
        line = after[start : stray.at]
        found.append(_Closer(stray.at, stray.closes, start > 0 and not line.strip(), columns(line)))
    return found


def _closes(closer: _Closer, frame: Frame, before: str) -> bool:
    if closer.closes != frame.closes:
        return False
    return not (closer.line_start and closer.indent < indent_at(before, frame.at))


def indent_at(text: str, at: int) -> int:
    """The indentation of the line that the offset is in."""
    return columns(text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0])
