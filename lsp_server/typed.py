"""What the user has written since a suggestion was asked for. Pure: it compares texts, never counts keystrokes.

Typing along, deleting, undoing, accepting a word or a line are all one question: does the text before the cursor
begin with the text that was there then, and is the text after it the same?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lsp_server.documents import Edit, Position

if TYPE_CHECKING:
    from engine.request import CompletionRequest

# What editors put behind the cursor by themselves when the opening one is typed.
CLOSERS = ")]}>\"'`"


class Typed(NamedTuple):
    """`text` was written where the suggestion begins; the editor put `closers` behind the cursor."""

    text: str
    closers: str = ""


def typed_since(before: CompletionRequest, now: CompletionRequest) -> Typed | None:
    """None if `now` is another place of the document, or anything else around the cursor has changed."""
    if not now.prefix.startswith(before.prefix) or not now.suffix.endswith(before.suffix):
        return None
    closers = now.suffix[: len(now.suffix) - len(before.suffix)]
    if closers.strip(CLOSERS):
        return None
    return Typed(now.prefix[len(before.prefix) :], closers)


def spliced(typed: str, start: Position, edits: Sequence[Edit]) -> str | None:
    """The text written at `start` after further edits; None once an edit touches anything else."""
    for edit in edits:
        first, last = _offset(typed, start, edit.start), _offset(typed, start, edit.end)
        if first is None or last is None:
            return None
        typed = typed[:first] + edit.text.replace("\r\n", "\n").replace("\r", "\n") + typed[last:]
    return typed


def may_become(typed: str, text: str, growing: bool) -> bool:
    """Whether `typed`, perhaps but for closers that the editor added, begins `text`; or may, while that grows."""
    for written in (typed, typed.rstrip(CLOSERS)):
        if text.startswith(written) or (growing and written.startswith(text)):
            return True
    return False


def advanced(start: Position, text: str) -> Position:
    """Where `text`, inserted at `start`, ends."""
    lines = text.split("\n")
    if len(lines) == 1:
        return Position(start.line, start.character + len(text))
    return Position(start.line + len(lines) - 1, len(lines[-1]))


def _offset(typed: str, start: Position, place: Position) -> int | None:
    """How far into `typed`, which stands at `start`, a place is; None if it is outside."""
    if place < start or place > advanced(start, typed):
        return None
    if place.line == start.line:
        return place.character - start.character
    lines = typed.split("\n")[: place.line - start.line]
    return sum(len(line) + 1 for line in lines) + place.character
