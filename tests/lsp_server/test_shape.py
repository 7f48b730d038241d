"""The rules of a suggestion's shape: before and after, language by language."""

from __future__ import annotations

from collections import Counter

import pytest
from shape_rows import ROWS, Row

from lsp_server.shape import RULES, Shape, language_of, shape_of, telling
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


@pytest.mark.parametrize(
    ("multiline", "document", "said", "shown"),
    [
        ("never", "def f():\n    ‸\n", "a()\n    b()\n", "a()"),
        ("auto", "def f():\n    ‸\n", "a()\n    b()\n", "a()\n    b()"),
        ("auto", "f(‸)\n", "a,\n  b)\n", "a,"),
        ("always", "f(‸)\n", "a,\n  b)\n", "a,\n  b"),
    ],
)
def test_the_setting_decides_over_lines(multiline: str, document: str, said: str, shown: str) -> None:
    row = Row("python", "", document, said, shown)
    shape = shape_at(row, multiline=multiline)
    assert shape.shown(said, finished=True) == shown
    assert (shape.stop == ("\n",)) == ("\n" not in shown)


@pytest.mark.parametrize(
    ("language_id", "path", "name"),
    [
        ("python", "", "python"),
        ("typescriptreact", "a.js", "tsx"),  # the editor knows best
        ("", "src/a.RS", "rust"),
        ("", "C:\\a.cs", "csharp"),
        ("plaintext", "a.go", "go"),
        ("cobol", "a.cob", "plaintext"),
        ("", "Makefile", "plaintext"),
        ("", ".bash", "bash"),
        ("", "", "plaintext"),
    ],
)
def test_the_language_of_a_document(language_id: str, path: str, name: str) -> None:
    assert language_of(language_id, path).name == name


@pytest.mark.parametrize(
    ("path", "language_id", "shown"),
    [
        ("a/plot.ipynb", "python", "a/plot.py"),
        ("a/plot.ipynb", "markdown", "a/plot.md"),
        ("a/plot.ipynb", "julia", "a/plot.ipynb"),
        ("Untitled-1", "typescript", "Untitled-1.ts"),
        ("a.b/setup", "python", "a.b/setup.py"),
        ("a.txt", "python", "a.txt"),
        ("a.h", "cpp", "a.h"),
        ("A.PY", "python", "A.PY"),
        ("LICENSE", "plaintext", "LICENSE"),
        ("Makefile", "makefile", "Makefile"),
        ("", "python", ""),
    ],
)
def test_a_path_tells_the_language(path: str, language_id: str, shown: str) -> None:
    assert telling(path, language_id) == shown


def test_a_long_document_is_read_near_the_cursor() -> None:
    """Seen to fail without a look at what the part that is not read ends in: the string was taken for code."""
    for opens, closes in (('"""', '"""'), ("'''", "'''")):
        prefix = f"def f():\n    {opens}\n" + "    it's (a\n" * 3000 + "    ends (here‸\n    " + closes + "\n"
        row = Row("python", "", prefix, " b) c", " b) c")
        assert shape_at(row).shown(row.said, finished=True) == row.shown
        assert shape_at(row).place.open[-1].span is not None
