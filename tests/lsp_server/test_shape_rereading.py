"""What is read again from where the last reading came to is what the lexer says of all of it."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsp_server.shape import nesting, place, rereading
from lsp_server.shape.languages import LANGUAGES, language_of
from lsp_server.shape.lexer import Frame, lex

PIECES = [*"()[]{}\"'`#/*<>\\=%$aA-|\n \t", "\n", '"""', "'''", "/*", "*/", "//", "${", "#{", "$(", "<<A", "<<~'A'"]
PIECES += [
    "\nA\n",
    "=begin",
    "\n=end",
    'r#"',
    '"#',
    '@"',
    '$"',
    "%w[",
    "<a",
    "</a>",
    "<!--",
    "-->",
    "\\\n",
    "if /",
    "'\\",
]
LONG = [Path(module.__file__) for module in (argparse, textwrap)]


@pytest.fixture(autouse=True)
def short_beginnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rereading, "_BEGINNING", 4)
    yield
    rereading._kept.cache_clear()
    rereading.lex_after.cache_clear()


texts = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
edits = st.tuples(st.integers(0, 40), st.integers(0, 6), st.lists(st.sampled_from(PIECES), max_size=6).map("".join))


@given(st.sampled_from(LANGUAGES), texts, st.lists(edits, min_size=1, max_size=8), st.booleans())
@example(language_of("shellscript"), "aaaa\n<<\n", [(0, 0, "A\n")], False)
@example(language_of("html"), "aaaa\n<a\n", [(0, 0, "b>\n")], False)
def test_edited_texts_are_read_as_if_anew(
    language, text: str, changes: list[tuple[int, int, str]], within: bool
) -> None:
    """Each edit is so many characters from the end. Seen to fail: with here documents and tags read so; with the lines
    of another text taken for this one's; with a state that two readings share."""
    inside = (Frame("{", "}", 7), *(Frame(span.opens, span.closes, 9, span) for span in language.spans[:1]))
    open_before = inside if within else ()
    assert rereading.lex_before(text, language, open_before) == lex(text, language, open_before)
    for from_end, deleted, inserted in changes:
        at = max(len(text) - from_end, 0)
        text = text[:at] + inserted + text[at + deleted :]
        assert rereading.lex_before(text, language, open_before) == lex(text, language, open_before)


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_every_place_of_a_module_that_is_typed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some lines of the beginning, the middle and the end, before what comes after them. Seen to fail: with the text
    behind the cursor read as it was when other brackets were open before it."""
    source, language = path.read_text(), language_of("python")

    def places() -> list[place.Place]:
        starts = (0, len(source) // 2, len(source) - 1200)
        spans = [(at, start + 1000) for start in starts for at in range(start, start + 1000, 5)]
        return [place.place_of(source[:at], source[end:], language, "auto") for at, end in spans]

    found = places()
    monkeypatch.setattr(place, "lex_before", lex)
    monkeypatch.setattr(nesting, "lex_after", lex)
    assert found == places()
