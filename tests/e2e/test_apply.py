"""The editors' rules that the other tests rely on, as before/after tables; and the positions they are given in."""

from __future__ import annotations

from typing import Any

import pytest

from .apply import neovim, neovim_screen, vscode
from .buffer import ENCODINGS, Buffer, units

HIDDEN = None


def item(buffer: Buffer, text: str, start: int, end: int) -> dict[str, Any]:
    return {"insertText": text, "range": {"start": buffer.position(start), "end": buffer.position(end)}}


def marked(text: str) -> tuple[str, int]:
    """`|` is the cursor."""
    return text.replace("|", ""), text.index("|")


# The document with its cursor; the range as characters replaced before and after the cursor (None: no range); the
# insert text; the document after it, or HIDDEN.
VSCODE: list[tuple[str, str, tuple[int, int] | None, str, str | None]] = [
    ("an insertion", "foo(|", (0, 0), "a, b)", "foo(a, b)|"),
    ("the rest of the line stays", "foo(| , b)", (0, 0), "a", "foo(a| , b)"),
    ("without a range the rest of the line goes", "foo(|, b)", None, "a, b)", "foo(a, b)|"),
    ("without a range the word is typed text", "x = pri|", None, "print()", "x = print()|"),
    ("without a range, what would delete is hidden", "foo(| , b)", None, "a", HIDDEN),
    ("what was typed is not the beginning", "x = pri|", (3, 0), "input()", HIDDEN),
    ("what was typed is", "x = pri|", (3, 0), "print()", "x = print()|"),
    ("replaces a bracket it brings", "foo(|)", (0, 1), "a)", "foo(a)|"),
    ("replaces a bracket it lacks", "foo(|)", (0, 1), "a", HIDDEN),
    ("subsequence", "foo(|,)", (0, 2), "a, b)", "foo(a, b)|"),
    ("no subsequence", "foo(|),", (0, 2), "a, b)", HIDDEN),
    ("the subsequence ignores case", "x = |A", (0, 1), "bar", "x = bar|"),
    ("nothing new", "print|", (5, 0), "print", HIDDEN),
    ("an empty text", "print|", (0, 0), "", HIDDEN),
    ("more lines", "if a:|\nx", (0, 0), "\n    b\n    c", "if a:\n    b\n    c|\nx"),
    ("column 0", "def f():\n|\nx", (0, 0), "    pass", "def f():\n    pass|\nx"),
    ("indentation does not count", "def f():\n  |", (2, 0), "    pass", "def f():\n    pass|"),
    ("indentation may become another", "    |", (4, 0), "\tpass", "\tpass|"),
    ("astral characters", 's = "😀" + |', (0, 0), '"漢"', 's = "😀" + "漢"|'),
    ("half of a pair in common", "😀|", (1, 0), "😁", HIDDEN),
    ("line ends become the document's", "a\r\n|\r\nb", (0, 0), "x\ny", "a\r\nx\r\ny|\r\nb"),
    ("other line ends, too", "a\n|\nb", (0, 0), "x\r\ny", "a\nx\ny|\nb"),
    ("end of file", "a\n|", (0, 0), "b\n", "a\nb\n|"),
    ("empty document", "|", (0, 0), "import os", "import os|"),
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("before", "span", "text", "after"), [row[1:] for row in VSCODE], ids=[row[0] for row in VSCODE]
)
def test_vscode(before, span, text, after, encoding):
    """Seen to fail without the subsequence rule, without the rule for indentation, and with a default range that ends
    at the cursor."""
    document, cursor = marked(before)
    buffer = Buffer(document, encoding)
    offer = {"insertText": text} if span is None else item(buffer, text, cursor - span[0], cursor + span[1])
    applied = vscode(buffer, cursor, offer)
    assert (applied and applied.text[: applied.cursor] + "|" + applied.text[applied.cursor :]) == after


TYPED: list[tuple[str, str, str, str | None]] = [
    ("x = |", "p", "print()", "x = print()|"),
    ("x = |", "q", "print()", HIDDEN),
    ("x = |", "print()", "print()", HIDDEN),
    ("foo(|)", "a", "a, b", "foo(a, b|)"),
]


@pytest.mark.parametrize(("before", "typed", "text", "after"), TYPED)
def test_vscode_after_typing(before, typed, text, after):
    """Seen to fail with a range that does not grow."""
    document, cursor = marked(before)
    buffer = Buffer(document)
    applied = vscode(buffer, cursor, item(buffer, text, cursor, cursor), typed)
    assert (applied and applied.text[: applied.cursor] + "|" + applied.text[applied.cursor :]) == after


def test_vscode_takes_no_range_over_lines():
    buffer = Buffer("a\nb")
    assert vscode(buffer, 1, item(buffer, "xb", 1, 3)) is HIDDEN


NEOVIM: list[tuple[str, str, tuple[int, int], str, str, list[str]]] = [
    ("an insertion", "foo(|, c)", (0, 0), "a, b", "foo(a, b|, c)", ["foo(a, b, c)"]),
    ("a replacement", "foo(|)", (0, 1), "a)", "foo(a)|", ["foo(a)"]),
    ("an overlay hides more than it replaces", "foo(|) + 1", (0, 1), "abc)", "foo(abc)| + 1", ["foo(abc)1"]),
    ("what was typed is skipped", "x = pri|", (3, 0), "print()", "x = print()|", ["x = print()"]),
    ("more lines", "if a:|\nx", (0, 0), "\n  b", "if a:\n  b|\nx", ["if a:", "  b"]),
    ("more lines within a line look otherwise", "f(|)", (0, 0), "\n  b\n", "f(\n  b\n|)", ["f()", "  b", ""]),
    ("bytes, not characters", 's = "é漢😀" + |', (0, 0), "1", 's = "é漢😀" + 1|', ['s = "é漢😀" + 1']),
    ("dos line ends", "a\r\n|\r\nb", (0, 0), "x\ny", "a\r\nx\r\ny|\r\nb", ["x", "y"]),
    ("a \\r in the text stays there", "a\r\n|\r\nb", (0, 0), "x\r\ny", "a\r\nx\r\r\ny|\r\nb", ["x\r", "y"]),
    ("column 0 of an empty document", "|", (0, 0), "x", "x|", ["x"]),
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("before", "span", "text", "after", "screen"), [row[1:] for row in NEOVIM], ids=[row[0] for row in NEOVIM]
)
def test_neovim(before, span, text, after, screen, encoding):
    """Seen to fail with line ends of the insert text made the document's, and with columns in characters."""
    document, cursor = marked(before)
    buffer = Buffer(document, encoding)
    offer = item(buffer, text, cursor - span[0], cursor + span[1])
    applied = neovim(buffer, cursor, offer)
    assert applied is not None
    assert applied.text[: applied.cursor] + "|" + applied.text[applied.cursor :] == after
    assert neovim_screen(buffer, cursor, offer) == screen


def test_neovim_raises_without_a_range():
    with pytest.raises(ValueError, match="range"):
        neovim(Buffer("a"), 1, {"insertText": "b"})


@pytest.mark.parametrize(
    ("text", "encoding", "length"),
    [
        ("a", "utf-8", 1),
        ("é", "utf-8", 2),
        ("漢", "utf-8", 3),
        ("😀", "utf-8", 4),
        ("😀", "utf-16", 2),
        ("😀", "utf-32", 1),
    ],
)
def test_units(text, encoding, length):
    assert units(text, encoding) == length


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_positions_and_offsets_are_inverse(encoding):
    """Line ends of every kind, and characters that only Python takes for line ends. Seen to fail with a count of \\r\\n
    as two line ends."""
    buffer = Buffer("a\r\né\r漢\n\n\r😀\x0c\u2028b\x85\r\n", encoding)
    offsets = [offset for offset in range(len(buffer.text) + 1) if not buffer.splits_line_end(offset)]
    positions = [buffer.position(offset) for offset in offsets]
    assert [buffer.offset(position) for position in positions] == offsets
    assert positions[-1] == {"line": 6, "character": 0}
    assert len({tuple(position.values()) for position in positions}) == len(offsets)


@pytest.mark.parametrize(
    ("position", "encoding"),
    [
        ({"line": 0, "character": 1}, "utf-16"),
        ({"line": 0, "character": 3}, "utf-16"),
        ({"line": 1, "character": 0}, "utf-8"),
    ],
)
def test_a_place_that_does_not_exist_is_no_offset(position, encoding):
    with pytest.raises(ValueError, match="no such"):
        Buffer("😀", encoding).offset(position)
