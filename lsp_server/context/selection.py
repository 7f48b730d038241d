"""Which pieces are sent and in which order: those sent before keep their places. Pure.

A model's cache holds what two prompts have in common from their beginning. A piece that changes place, or goes, costs
all that stands behind it, so what has been sent stays until something clearly better comes, and new pieces go last.
"""

from __future__ import annotations

from collections.abc import Sequence

from lsp_server.context.sources import Piece

_LOYALTY = 2  # a piece that is there already counts as if it stood so many places further in front


def select(previous: Sequence[Piece], ranked: Sequence[Piece], most: int, budget: int) -> tuple[Piece, ...]:
    """At most `most` of the `ranked` pieces (the best first), of at most `budget` characters together."""
    places = {piece.key: place for place, piece in enumerate(previous)}
    rank = {each.key: (at, True) for at, each in reversed([*enumerate(ranked)])}
    rank |= {key: (rank[key][0] - _LOYALTY, False) for key in places if key in rank}
    chosen = dict[tuple[str, str, int], Piece]()
    for piece in sorted(ranked, key=lambda each: rank[each.key]):
        if len(chosen) < most and piece.key not in chosen and len(piece.text) <= budget:
            budget -= len(piece.text)
            chosen[piece.key] = piece
    return tuple(sorted(chosen.values(), key=lambda piece: places.get(piece.key, len(places))))
