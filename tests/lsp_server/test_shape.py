"""The rules of a suggestion's shape: before and after, language by language."""

from __future__ import annotations

from collections import Counter

import pytest
from shape_rows import ROWS, Row

from lsp_server.shape import RULES, Shape, language_of, shape_of
from lsp_server.shape.languages import LANGUAGES


def shape_at(row: Row, **options: object) -> Shape:
    prefix, _, suffix = row.document.partition("‸")
    return shape_of(prefix, suffix, language_of(row.language), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.language}-{row.case}" for row in ROWS])
def test_before_and_after(row: Row) -> None:
    shape = shape_at(row)
    assert shape.shown(row.said, finished=True) == row.shown
    assert shape.shown(row.shown, finished=True) == row.shown, "what is right stays as it is"


def test_every_language_has_its_rows() -> None:
    counts = Counter(row.language for row in ROWS)
    assert {language.name for language in LANGUAGES} <= set(counts)
    assert min(counts.values()) >= 8


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_is_needed_and_can_be_left_out(rule: str) -> None:
    """Some row comes out otherwise without it."""
    assert any(shape_at(row, rules=RULES - {rule}).shown(row.said, finished=True) != row.shown for row in ROWS)
