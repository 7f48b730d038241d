"""The shape of a suggestion: one line or a block, where it ends, and how it fits between the text on its two sides.

Everything here is a pure function of the text around the cursor and the suggestion; `shape_of` reads the first, the
`Shape` it returns judges the second while it is being written. Line ends are `\\n`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lsp_server.shape import repeats, stops, tidy
from lsp_server.shape.languages import Language, language_of, telling
from lsp_server.shape.place import Place, place_of
from lsp_server.shape.reading import Reading, Ruling

__all__ = ["RULES", "Language", "Shape", "language_of", "shape_of", "telling"]

RULES = frozenset(stops.RULES) | {"indent", "space", "overlap", "trail"}


@dataclass(frozen=True, slots=True)
class Shape:
    """How suggestions at one place look. `rules` are those that apply, by name."""

    place: Place
    rules: AbstractSet[str] = RULES

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end the text for certain, for an engine that stops at them by itself."""
        return ("\n",) if self.place.kind == "line" and "line_end" in self.rules else ()

    def complete(self, text: str) -> bool:
        """Whether nothing that follows `text` would be shown."""
        return self._ruling(self._body(text)).stop is not None

    def shown(self, text: str, finished: bool) -> str:
        """The part of the text to show, "" for none. While the text grows, what is shown of it grows, too."""
        body = self._body(text)
        ruling = self._ruling(body)
        if ruling.stop is not None:
            body, finished = body[: ruling.stop.at], True
        kept = self._tidied(body) if finished else self._certain(body, ruling.certain)
        return kept if kept.strip() else ""

    def _body(self, text: str) -> str:
        return text[tidy.lead(text, self.place, "indent" in self.rules, "space" in self.rules) :]

    def _ruling(self, body: str) -> Ruling:
        """The rule that was certain first counts: it would have ended the text there."""
        reading = Reading(body, self.place)
        rulings = [rule(reading) for name, rule in stops.RULES.items() if name in self.rules]
        found = [ruling.stop for ruling in rulings if ruling.stop is not None]
        return Ruling(min(found, default=None), min((ruling.certain for ruling in rulings), default=len(body)))

    def _certain(self, body: str, certain: int) -> str:
        """The part that stays whichever rule ends the text: at its end, or before what is not certain yet."""
        if "overlap" in self.rules:
            ends = (len(body), certain, len(body[:certain].rstrip()))
            certain = min(certain, *(tidy.overlap(Reading(body[:end], self.place), strict=False) for end in ends))
        return body[:certain].rstrip() if "trail" in self.rules else body[:certain]

    def _tidied(self, body: str) -> str:
        size = -1
        while size != len(body):  # `)(` before `(`: what one rule drops may be what made the rest right for another
            size = len(body)
            if "closers" in self.rules:
                body = body[: stops.unbalanced(Reading(body, self.place))]
            if "suffix_line" in self.rules:
                body = body[: repeats.last_repeat(Reading(body, self.place))]
            if "overlap" in self.rules:
                body = body[: tidy.overlap(Reading(body, self.place))]
        return body[: tidy.trail(body, self.place.rest)] if "trail" in self.rules else body


def shape_of(
    prefix: str, suffix: str, language: Language, multiline: str = "auto", rules: AbstractSet[str] = RULES
) -> Shape:
    """The shape of a suggestion between `prefix` and `suffix`; `multiline` is the setting: auto, always or never."""
    return Shape(place_of(prefix, suffix, language, multiline), rules)
