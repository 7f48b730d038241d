"""Where a suggestion goes: at the cursor, or in place of what the completion popup would replace."""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.context import normalised
from lsp_server.documents import Document, Position


@dataclass(frozen=True, slots=True)
class Selected:
    """The popup's item that is focused: accepting it would put `text` in place of start..end (wire positions)."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """The model continues at `head`, after `selected`, and knows what follows `tail`; code points."""

    cursor: Position
    head: Position
    tail: Position
    selected: str  # what a suggestion must begin with
    start: Position  # the range it replaces, in wire positions
    end: Position


def place(document: Document, position: Position, selected: Selected | None) -> Place | None:
    """None if nothing that extends the popup's item could be shown."""
    cursor = document.locate(position)
    wire = document.wire(cursor)
    plain = Place(cursor, cursor, cursor, "", wire, wire)
    if selected is None:
        return plain
    head, tail = document.locate(selected.start), document.locate(selected.end)
    if not (head.line == tail.line == cursor.line and head <= cursor <= tail):
        return plain  # not about this place: Neovim sends a visual selection
    typed = document.lines[cursor.line][head.character : cursor.character]
    if not selected.text.startswith(typed):
        return None  # the popup matched loosely (`cns` for `console`), and editors hide what does not begin as typed
    return Place(cursor, head, tail, normalised(selected.text), document.wire(head), document.wire(tail))
