"""The document mirror against an independent, slow model that counts the client's units one by one."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.documents import Change, Document, Documents, Encoding, Position

EXAMPLES = int(os.environ.get("SPECTER_EXAMPLES", "400"))
ENCODINGS: list[Encoding] = ["utf-8", "utf-16", "utf-32"]
ALPHABET = [
    "a",
    "b",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\x0c",
    "\x0b",
    "\x1c",
    "\x85",
    "\u2028",
    "é",
    "漢",
    "😀",
    "\ufeff",
]


def width(char: str, encoding: Encoding) -> int:
    if encoding == "utf-32":
        return 1
    return len(char.encode("utf-8")) if encoding == "utf-8" else 1 + (ord(char) > 0xFFFF)


def slow_offset(text: str, position: Position, encoding: Encoding) -> int:
    """The offset of a wire position, walking from the beginning of the text."""
    offset = 0
    for _ in range(position.line):
        while offset < len(text) and text[offset] not in "\r\n":
            offset += 1
        if offset == len(text):
            return offset
        offset += 2 if text[offset : offset + 2] == "\r\n" else 1
    used = 0
    while offset < len(text) and text[offset] not in "\r\n":
        used += width(text[offset], encoding)
        if used > position.character:
            break
        offset += 1
    return offset


def slow_apply(text: str, change: Change, encoding: Encoding) -> str:
    if change.start is None or change.end is None:
        return change.text
    first, last = sorted((slow_offset(text, change.start, encoding), slow_offset(text, change.end, encoding)))
    return text[:first] + change.text + text[last:]


texts = st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join)
positions = st.builds(Position, st.integers(0, 12), st.integers(0, 24))
changes = st.one_of(
    st.builds(Change, positions, positions, texts),
    st.builds(lambda at, text: Change(at, at, text), positions, st.sampled_from(ALPHABET)),
    st.builds(lambda text: Change(None, None, text), texts),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=texts, edits=st.lists(changes, max_size=12), cursor=positions)
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_edits_leave_the_clients_text(encoding: Encoding, text: str, edits: list[Change], cursor: Position) -> None:
    """SPECTER_EXAMPLES=1600 makes more than 20,000 edits. Seen to fail with str.splitlines, without the join of \\r and
    \\n, and with a clamp after the line end."""
    document = Document("u", "python", 0, text, encoding)
    for version, change in enumerate(edits, 1):
        text = slow_apply(text, change, encoding)
        document.apply(change, version)
        assert document.text == text
        assert document.version == version
    shot = document.snapshot(document.locate(cursor))
    offset = slow_offset(text, cursor, encoding)
    assert (shot.prefix, shot.suffix) == (text[:offset], text[offset:])
    fresh = Document("u", "python", 0, text, encoding)
    assert document.lines == fresh.lines


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=texts, cursor=positions)
@settings(max_examples=200, deadline=None)
def test_a_position_survives_the_way_there_and_back(encoding: Encoding, text: str, cursor: Position) -> None:
    document = Document("u", "python", 0, text, encoding)
    place = document.locate(cursor)
    wire = document.wire(place)
    assert document.locate(wire) == place
    assert wire <= cursor or cursor.line >= len(document.lines)


@pytest.mark.parametrize(
    ("text", "position", "encoding", "before"),
    [
        ("abc", (0, 99), "utf-16", "abc"),  # pygls stops before the last character of a last line
        ("abc\r\nd", (0, 4), "utf-16", "abc"),  # not between \r and \n
        ("a\n", (1, 0), "utf-16", "a\n"),  # the empty line after a final line end is a line
        ("a\nb", (7, 3), "utf-16", "a\nb"),
        ("x😀y", (0, 2), "utf-16", "x"),  # within a surrogate pair: down
        ("x😀y", (0, 3), "utf-16", "x😀"),
        ("öbc", (0, 2), "utf-8", "ö"),  # pygls PR 564
        ("öbc", (0, 1), "utf-8", ""),
        ("x😀y", (0, 2), "utf-32", "x😀"),
        ("a\x0cb\nS", (1, 0), "utf-16", "a\x0cb\n"),  # a form feed ends no line
        ("", (0, 0), "utf-16", ""),
    ],
)
def test_positions_at_the_edges(text: str, position: tuple[int, int], encoding: Encoding, before: str) -> None:
    document = Document("u", "python", 0, text, encoding)
    assert document.snapshot(document.locate(Position(*position))).prefix == before


def test_a_snapshot_of_a_long_document_holds_the_lines_near_the_cursor() -> None:
    lines = [f"line {number}\n" for number in range(100_000)]
    shot = Document("u", "python", 0, "".join(lines), "utf-16").snapshot(Position(50_000, 4))
    assert "".join(lines[:50_000]).endswith(shot.prefix.removesuffix("line"))
    assert shot.suffix.startswith(" 50000\nline 50001\n")
    assert 100_000 < len(shot.prefix) < 200_000
    assert 100_000 < len(shot.suffix) < 200_000


def test_two_halves_of_a_pair_become_one_character() -> None:
    """A client may send them in two edits; kept apart they would be one unit each but two code points."""
    document = Document("u", "python", 0, "ab", "utf-16")
    document.apply(Change(Position(0, 1), Position(0, 1), "\ud83d"), 1)
    assert document.locate(Position(0, 2)) == Position(0, 2)
    document.apply(Change(Position(0, 2), Position(0, 2), "\ude00"), 2)
    assert document.text == "a😀b"


def test_a_document_is_known_by_its_exact_uri() -> None:
    documents = Documents("utf-16")
    documents.open("file:///a%20b", "python", 1, "one")
    documents.open("file:///a%2520b", "python", 1, "two")
    documents.open("file:///a%20b", "python", 5, "again")
    assert [documents.get(uri).text for uri in ("file:///a%20b", "file:///a%2520b")] == ["again", "two"]
    documents.close("file:///a%20b")
    documents.close("file:///never")
    assert len(documents) == 1


def test_a_change_to_a_document_never_opened_is_nobodys() -> None:
    documents = Documents("utf-16")
    assert documents.change("file:///x", 1, [Change(None, None, "text")]) == []
    assert documents.get("file:///x") is None


@pytest.mark.parametrize("text", ["x = call(1, 2)  # words\n" * 44_000, "é = '漢😀'  # words and words\n" * 36_000])
def test_an_edit_of_a_megabyte_takes_milliseconds(text: str) -> None:
    """The median, so that a busy machine does not decide; re-splitting the text takes ten times as long."""
    document = Document("u", "python", 0, text, "utf-16")
    took = []
    for version in range(50):
        place = Position(version * 97, 3)
        start = time.perf_counter()
        document.apply(Change(place, place, "\n" if version % 5 == 0 else "y"), version)
        took.append(time.perf_counter() - start)
    assert sorted(took)[len(took) // 2] < 0.002
