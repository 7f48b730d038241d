"""What the model should see: a snapshot becomes the engine's request, and the shape of its answer.

Line ends are `\\n` here, so that a file gives the same tokens whatever its line ends are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lsp_server import exclusions
from lsp_server.context.text import normalised
from lsp_server.documents import Snapshot
from lsp_server.settings import Settings
from lsp_server.shape import Shape, language_of, shape_of, telling

if TYPE_CHECKING:  # the engine takes seconds to import
    from engine.config import EngineConfig
    from engine.request import CompletionRequest, Snippet
    from lsp_server.context.sources import Piece

__all__ = ["build", "ending", "normalised", "shape", "snippets"]


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

    return CompletionRequest(
        prefix=normalised(snapshot.prefix) + normalised(typed),
        suffix=normalised(snapshot.suffix),
        path=telling(exclusions.relative_path(snapshot.uri, folders) or _name(snapshot.uri), snapshot.language_id),
        repository=_repository(folders),
        snippets=tuple(snippets),
        sampling=config.sampling,
        max_tokens=config.max_tokens,
        deadline_s=settings.deadline_ms / 1000,
        document=snapshot.uri,
    )


def shape(request: CompletionRequest, language_id: str, settings: Settings) -> Shape:
    """What of a text is worth showing at the request's place, and where it is complete."""
    language = language_of(language_id, request.path)
    return shape_of(request.prefix, request.suffix, language, settings.multiline)


def ending(request: CompletionRequest, wanted: Shape) -> CompletionRequest:
    """The request, ending where the suggestion is complete."""
    return replace(request, stop=wanted.stop, until=wanted.complete)


def snippets(pieces: Iterable[Piece]) -> list[Snippet]:
    """The pieces as the engine takes them."""
    from engine.request import Snippet

    return [Snippet(piece.path, piece.text) for piece in pieces]


def _repository(folders: Sequence[str]) -> str:
    return _name(folders[0]) if folders else ""


def _name(uri: str) -> str:
    """The last part of a path: what is above it is none of the model's business."""
    return exclusions.path_of(uri).rstrip("/").rpartition("/")[2]


# Hot enough to differ, and without the tail that makes nonsense (Holtzman et al., 2019).
_ALTERNATIVE_TEMPERATURE, _ALTERNATIVE_TOP_P, _ALTERNATIVES = 0.8, 0.95, 4


def alternatives(request: CompletionRequest) -> tuple[CompletionRequest, ...]:
    """Requests for other texts at the same place; some may come to the same."""
    from engine.request import Sampling

    temperature = max(request.sampling.temperature, _ALTERNATIVE_TEMPERATURE)
    first = request.sampling.seed or 0
    return tuple(
        replace(
            request,
            sampling=Sampling("sampled", temperature, top_p=_ALTERNATIVE_TOP_P, seed=first + number),
        )
        for number in range(1, _ALTERNATIVES + 1)
    )
