"""What the model should see: a snapshot becomes the engine's request.

Line ends are `\\n` here, so that a file gives the same tokens whatever its line ends are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lsp_server import exclusions
from lsp_server.context.text import normalised
from lsp_server.documents import Snapshot
from lsp_server.settings import Settings

if TYPE_CHECKING:  # the engine takes seconds to import
    from engine.config import EngineConfig
    from engine.request import CompletionRequest, Snippet
    from lsp_server.context.sources import Piece

__all__ = ["build", "normalised", "snippets"]


def build(
    snapshot: Snapshot,
    folders: Sequence[str],
    settings: Settings,
    config: EngineConfig,
    typed: str = "",
    snippets: Sequence[Snippet] = (),
) -> CompletionRequest:
    """The request for a completion at the snapshot's cursor; `typed` is text to take as written before it."""
    from engine.request import CompletionRequest

    suffix = normalised(snapshot.suffix)
    return CompletionRequest(
        prefix=normalised(snapshot.prefix) + normalised(typed),
        suffix=suffix,
        path=exclusions.relative_path(snapshot.uri, folders) or _name(snapshot.uri),
        repository=_repository(folders),
        snippets=tuple(snippets),
        sampling=config.sampling,
        max_tokens=config.max_tokens,
        stop=("\n",) if _single_line(settings, suffix) else (),
        deadline_s=settings.deadline_ms / 1000,
    )


def snippets(pieces: Iterable[Piece]) -> list[Snippet]:
    """The pieces as the engine takes them."""
    from engine.request import Snippet

    return [Snippet(piece.path, piece.text) for piece in pieces]


def _single_line(settings: Settings, suffix: str) -> bool:
    """In the middle of a line, more lines would push its rest down."""
    return settings.multiline == "never" or (settings.multiline == "auto" and bool(suffix.partition("\n")[0].strip()))


def _repository(folders: Sequence[str]) -> str:
    return _name(folders[0]) if folders else ""


def _name(uri: str) -> str:
    """The last part of a path: what is above it is none of the model's business."""
    return exclusions.path_of(uri).rstrip("/").rpartition("/")[2]
