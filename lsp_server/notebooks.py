"""Notebooks as the model sees them: the cells of one language, in their order, as one text around the cursor's cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lsp_server.documents import Documents, Snapshot

_REACH = 1 << 17  # characters of other cells on each side


class Notebooks:
    """The cells (uris of documents) of each open notebook, in their order. Their texts are `documents`' business."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._cells: dict[str, list[str]] = {}

    def open(self, notebook: str, cells: Sequence[str]) -> None:
        """Take a notebook; opening it again replaces it."""
        self._cells[notebook] = list(cells)

    def splice(self, notebook: str, start: int, deleted: int, cells: Sequence[str]) -> None:
        """`cells` take the place of `deleted` cells from `start` on; in a notebook never opened, nothing happens."""
        if notebook in self._cells:
            self._cells[notebook][start : start + deleted] = cells

    def close(self, notebook: str) -> list[str]:
        """The cells that close with it."""
        return self._cells.pop(notebook, [])

    def joined(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot of a cell with the other cells of its language around it; of another document, itself."""
        cells = next((cells for cells in self._cells.values() if snapshot.uri in cells), None)
        if cells is None:
            return snapshot
        place = cells.index(snapshot.uri)
        before = self._texts(reversed(cells[:place]), snapshot.language_id)[::-1]
        after = self._texts(cells[place + 1 :], snapshot.language_id)
        return replace(
            snapshot,
            prefix="".join(f"{text}\n" for text in before) + snapshot.prefix,
            suffix=snapshot.suffix + "".join(f"\n{text}" for text in after),
        )

    def _texts(self, order: Iterable[str], language_id: str) -> list[str]:
        """The cells' texts in that order, until they hold enough."""
        texts, size = list[str](), 0
        for uri in order:
            document = self._documents.get(uri)
            if document is None or document.language_id != language_id:
                continue
            if size >= _REACH:
                break
            texts.append(document.text.rstrip("\r\n"))
            size += len(texts[-1])
        return texts
