"""Suggestions as items of `textDocument/completion`, for clients without inline completion."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types

from lsp_server import handshake
from lsp_server.documents import Position
from lsp_server.session import Suggestion

_MOST_LABEL = 60
_LAST = "\uffff"  # sorts behind whatever other servers offer


def completion_list(suggestions: Sequence[Suggestion], word: str, start: Position) -> types.CompletionList:
    """`word` stands before the cursor, from `start` (wire position) on; clients compare items with it.

    Incomplete, so that a client asks again as its user types on.
    """
    return types.CompletionList(is_incomplete=True, items=[_item(one, word, start) for one in suggestions])


def _item(suggestion: Suggestion, word: str, start: Position) -> types.CompletionItem:
    text = word + suggestion.text
    first, _, more = text.strip().partition("\n")
    return types.CompletionItem(
        label=first if len(first) <= _MOST_LABEL and not more else first[: _MOST_LABEL - 1] + "…",
        kind=types.CompletionItemKind.Text,
        detail="Specter",
        documentation=text if more else None,
        sort_text=_LAST,
        filter_text=text.partition("\n")[0],
        insert_text_format=types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AsIs,
        text_edit=types.TextEdit(types.Range(types.Position(*start), types.Position(*suggestion.end)), text),
        command=types.Command("Specter: accepted", handshake.ACCEPTED, arguments=[suggestion.id]),
    )
