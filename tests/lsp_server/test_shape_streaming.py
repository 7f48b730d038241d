"""What is shown of a text while it grows: whatever text, place and language, nothing is ever taken back."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from lsp_server.shape import RULES, language_of, shape_of
from lsp_server.shape.languages import LANGUAGES
from lsp_server.shape.lexer import lex

PIECES = [
    *"()[]{}\"'`#/\\:;,.=<>*|-~",
    *("\n", "\n\n", " ", "    ", "\t", "\n    ", "\n  ", '"""', "'''", "//", "/*", "*/", "${", "</", "</a>", "<a>"),
    *("a", "foo", "else", "end", "def f():", "return x", "if (a) {", "do", "fi", "<<EOF", "EOF", "é", "😀"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=12)
languages = st.sampled_from([language.name for language in LANGUAGES])
settings_of_lines = st.sampled_from(["auto", "always", "never"])


def shown(prefix: str, suffix: str, language: str, multiline: str, said: list[str]) -> list[str]:
    """What is shown after each character of the text, and in the end."""
    shape = shape_of(prefix, suffix, language_of(language), multiline)
    text = "".join(said)
    growing = [shape.shown(text[:count], finished=False) for count in range(len(text) + 1)]
    return [*growing, shape.shown(text, finished=True)]


@given(texts.map("".join), texts, texts.map("".join), languages, settings_of_lines)
@example("a = 1\n", ["x", "\n", "x", "\n", "x", "\n"], "", "python", "auto")
@example("", ["ret", "urn x"], "\nreturn x\n", "python", "auto")
def test_what_is_shown_only_grows(prefix: str, said: list[str], suffix: str, language: str, multiline: str) -> None:
    for earlier, later in itertools.pairwise(shown(prefix, suffix, language, multiline, said)):
        assert later.startswith(earlier)


@given(texts.map("".join), texts, texts.map("".join), languages, settings_of_lines)
def test_what_is_shown_is_a_piece_of_the_text(
    prefix: str, said: list[str], suffix: str, language: str, multiline: str
) -> None:
    text = "".join(said)
    for one in shown(prefix, suffix, language, multiline, said):
        assert one in text
        assert one == "" or one.strip()


@given(texts.map("".join), texts, texts.map("".join), languages, st.sets(st.sampled_from(sorted(RULES))))
def test_once_complete_nothing_is_added(
    prefix: str, said: list[str], suffix: str, language: str, rules: set[str]
) -> None:
    shape = shape_of(prefix, suffix, language_of(language), "auto", rules)
    text, final = "", None
    for char in "".join(said):
        text += char
        if final is not None:
            assert shape.complete(text)
            assert shape.shown(text, finished=False) == shape.shown(text, finished=True) == final
        elif shape.complete(text):
            final = shape.shown(text, finished=True)


@given(texts.map("".join), texts.map("".join), texts.map("".join), languages, settings_of_lines)
def test_what_was_tidied_needs_no_tidying(prefix: str, said: str, suffix: str, language: str, multiline: str) -> None:
    shape = shape_of(prefix, suffix, language_of(language), multiline)
    once = shape.shown(said, finished=True)
    assert shape.shown(once, finished=True) == once


def balanced(depth: int = 2) -> st.SearchStrategy[str]:
    """Code whose brackets fit."""
    inner = balanced(depth - 1) if depth else st.just("a")
    piece = st.one_of(st.just("a, "), inner.map(lambda text: f"({text})"), inner.map(lambda text: f"[{text}]"))
    return st.lists(piece, max_size=3).map("".join)


@given(balanced(), st.integers(0, 60), st.lists(st.sampled_from("a([)],"), max_size=10).map("".join))
@example("(a)", 2, "b)")
@example("(a)", 2, "b])")
@example("(())", 1, ")(")
def test_balanced_brackets_are_never_closed_twice(document: str, cut: int, said: str) -> None:
    """Seen to fail with brackets that are counted without their kind."""
    prefix, suffix = document[:cut], document[cut:]
    text = prefix + shape_of(prefix, suffix, language_of("python")).shown(said, finished=True) + suffix
    assert not lex(text, language_of("python")).stray
