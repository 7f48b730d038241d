from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.trim import tidy


@pytest.mark.parametrize(
    ("suggestion", "suffix", "shown"),
    [
        ("equal`≠`", "`≠`\n", "equal"),  # llama.vscode 13
        ("a, b)", ")\n", "a, b"),
        ("a, b):\n    pass", "):\n", "a, b):\n    pass"),  # the last line decides: the rest follows it
        ("x)", "))", "x"),
        ("foo", "", "foo"),
        ("foo", "\nfoo", ""),
        ("foo\n", "\n    foo\nbar", ""),
        ("foo", "\nfoobar", "foo"),
        ("}", "\n}\n", "}"),  # two blocks may end one after the other
        (")", ")", ""),
        ("abc", "   \n", "abc"),  # white space to the right is not a rest of the line
        ("  \n", "x", ""),
        ("", "", ""),
        ("same = 1", "", "same = 1"),  # continue 3577: no suffix, no duplicate
    ],
)
def test_the_last_text(suggestion: str, suffix: str, shown: str) -> None:
    assert tidy(suggestion, suffix) == shown


def test_a_text_that_may_become_a_repetition_is_held_back() -> None:
    assert tidy("ret", "\nreturn x\n", finished=False) == ""
    assert tidy("return y", "\nreturn x\n", finished=False) == "return y"


pieces = st.lists(st.sampled_from(["a", ")", "(", "\n", " ", "b)"]), max_size=8)


@given(pieces, pieces.map("".join))
def test_partial_texts_extend_one_another(said: list[str], suffix: str) -> None:
    """Seen to fail with an overlap that need not be the longest."""
    texts = ["".join(said[:count]) for count in range(len(said) + 1)]
    shown = [tidy(text, suffix, finished=False) for text in texts]
    for earlier, later in itertools.pairwise(shown):
        assert later.startswith(earlier)
