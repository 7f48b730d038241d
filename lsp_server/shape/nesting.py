"""What is open at the cursor, and how much of it the document closes itself below."""

from __future__ import annotations

import re
from typing import NamedTuple

from lsp_server.shape.languages import Language
from lsp_server.shape.lexer import Frame
from lsp_server.shape.rereading import lex_after


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


def closable(before: str, after: str, open_: tuple[Frame, ...], language: Language, whole: bool) -> tuple[int, int]:
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
        if left == len(after) and closer is None and not whole:
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
        line = after[at:].partition("\n")[0]
        if line.strip() and columns(line) <= indent and not _CLOSING.match(line.lstrip()):
            return at
        at += len(line) + 1
    return len(after)


def _ends(frame: Frame, after: str) -> bool:
    """Whether the string or comment that the cursor is in ends below, as far as counting can tell."""
    span = frame.span
    assert span is not None
    line = after.partition("\n")[0]
    here = line.count(frame.closes) - line.count("\\" + frame.closes)
    if not span.multiline or here:
        return here % 2 == 1  # two more begin and end a string of their own
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
    within = tuple(frame._replace(at=-1) for frame in frames)  # where they began makes no difference there
    for stray in lex_after(after, language, within).stray:
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
