"""Guesses from the user's other files: REST (He et al., 2024) over an index that lives beside the editor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.drafters import Context
from engine.drafters.guess_tree import Continuation, likeliest
from engine.drafters.surroundings import Markers
from engine.speculation import Draft
from engine.workspace_index import LONGEST_MATCH, WorkspaceIndex

_CANDIDATES = 24  # places whose continuations are merged


class WorkspaceDrafter:
    """Looks the end of the text up in the workspace; `document` names the file that is completed, which the index may
    hold as it was before: there, the text at the cursor would always be found, and followed by what stands behind it.
    """

    name = "workspace"

    def __init__(self, index: WorkspaceIndex, markers: Markers, document: str = "") -> None:
        self._index = index
        self._markers = markers
        self._document = document
        self._before_cursor: list[int] = []

    def prepare(self, prompt: Sequence[int]) -> Iterator[None]:
        self._before_cursor = self._markers.parts(prompt)[-1][-LONGEST_MATCH:]
        return iter(())

    def propose(self, context: Context, limit: int) -> Draft:
        return likeliest(self, context, limit)

    def continuations(self, context: Context, length: int, ahead: Sequence[int] = ()) -> list[Continuation]:
        """What followed the last tokens elsewhere, the longest matches first; `ahead` are guesses to take as said."""
        emitted = context.tokens[max(len(context.tokens) - LONGEST_MATCH, context.prompt_length) :]
        tail = [*self._before_cursor, *emitted, *ahead][-LONGEST_MATCH:]
        found = self._index.find(tail, _CANDIDATES, length, self._document)
        return [Continuation(place.match, place.tokens) for place in found]
