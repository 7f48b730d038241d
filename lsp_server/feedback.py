"""What became of the suggestions: counts per language and drafter. Keeps no text."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["shown", "accepted", "partlyAccepted", "rejected", "ignored"]

_REMEMBERED = 512


@dataclass(slots=True)
class _Offer:
    language: str
    drafter: str
    fates: set[Fate] = field(default_factory=set)


class Feedback:
    """The ledger of one client. Each suggestion counts once for each fate; ids never offered count for nothing."""

    def __init__(self) -> None:
        self._offers: OrderedDict[str, _Offer] = OrderedDict()
        self._counts: Counter[tuple[Fate, str, str]] = Counter()
        self._on_screen: str | None = None

    def offered(self, suggestion: str, language: str, drafter: str) -> None:
        self._offers.setdefault(suggestion, _Offer(language, drafter))
        if len(self._offers) > _REMEMBERED:
            self._offers.popitem(last=False)

    def shown(self, suggestion: str) -> None:
        """On screen; what was there before and found no other fate was ignored."""
        if self._on_screen is not None and self._on_screen != suggestion:
            self._count("ignored", self._on_screen, unless=("accepted", "partlyAccepted", "rejected"))
        self._on_screen = suggestion if suggestion in self._offers else None
        self._count("shown", suggestion)

    def accepted(self, suggestion: str) -> None:
        self._count("accepted", suggestion)

    def partly_accepted(self, suggestion: str) -> None:
        self._count("partlyAccepted", suggestion)

    def rejected(self, suggestion: str) -> None:
        self._count("rejected", suggestion, unless=("accepted",))

    def to_json(self) -> dict[str, object]:
        """The counts: in all, by language and by drafter."""
        return {
            **_fates(self._counts),
            "byLanguage": self._by(1),
            "byDrafter": self._by(2),
        }

    def _count(self, fate: Fate, suggestion: str, unless: tuple[Fate, ...] = ()) -> None:
        offer = self._offers.get(suggestion)
        if offer is None or fate in offer.fates or offer.fates.intersection(unless):
            return
        offer.fates.add(fate)
        self._counts[fate, offer.language, offer.drafter] += 1

    def _by(self, place: Literal[1, 2]) -> dict[str, dict[str, int]]:
        groups: dict[str, Counter[tuple[Fate, str, str]]] = {}
        for key, count in self._counts.items():
            groups.setdefault(key[place], Counter())[key] = count
        return {name: _fates(counts) for name, counts in groups.items()}


def _fates(counts: Counter[tuple[Fate, str, str]]) -> dict[str, int]:
    totals: dict[str, int] = dict.fromkeys(("shown", "accepted", "partlyAccepted", "rejected", "ignored"), 0)
    for (fate, _, _), count in counts.items():
        totals[fate] += count
    return totals
