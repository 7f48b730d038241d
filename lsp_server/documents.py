"""The open documents, exactly as the client has them: edits, line ends and positions as LSP defines them.

Knows no protocol library and reads no disk. A text is kept as the list of its lines: an edit touches the lines it
names and shifts a list of pointers, so its cost hardly depends on the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

Encoding = Literal["utf-8", "utf-16", "utf-32"]

# LSP knows these three line ends and no other; str.splitlines would also split at form feeds, U+2028 and NEL.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
# Characters kept on each side of a cursor: more than any prompt has room for, and joining a megabyte takes 2 to 7 ms.
_REACH = 1 << 17
# JSON can carry half a surrogate pair (`"\\ud83d"`), and a client counts it as one unit all the same.
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def is_uri(text: str) -> bool:
    """Whether a document can have this name: not with a "[" that is not closed, for one, which no library splits."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


class Position(NamedTuple):
    """A place in a text: line and character from 0. The unit of `character` is the client's on the wire, a code point
    in everything this package keeps."""

    line: int
    character: int


class Change(NamedTuple):
    """What a client says it did: `text` took the place of start..end (wire positions), or of everything (None)."""

    start: Position | None
    end: Position | None
    text: str


class Edit(NamedTuple):
    """A change that was made: the replaced span in code points of the text before it."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A document and a cursor at one moment; later edits do not reach it."""

    uri: str
    language_id: str
    version: int
    prefix: str  # the text before the cursor; of a long document, the lines near it
    suffix: str  # the text after it, likewise
    cursor: Position


class Document:
    """One open text. Invariant: `"".join(lines)` is the client's text and the last line has no line end."""

    def __init__(self, uri: str, language_id: str, version: int, text: str, encoding: Encoding = "utf-16") -> None:
        self.uri = uri
        self.language_id = language_id
        self.version = version
        self.encoding = encoding
        self.lines = split_lines(text)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def apply(self, change: Change, version: int) -> Edit:
        """Make the change and say what it was. Positions outside the text are clamped into it."""
        self.version = version
        if change.start is None or change.end is None:
            whole = Edit(Position(0, 0), Position(len(self.lines) - 1, len(self.lines[-1])), change.text)
            self.lines = split_lines(change.text)
            return whole
        start, end = sorted((self.locate(change.start), self.locate(change.end)))
        self._replace(start, end, change.text)
        return Edit(start, end, change.text)

    def locate(self, position: Position) -> Position:
        """The wire position in code points: a line past the end is the end of the text, a character past the end of
        its line is the place before the line end, and the middle of a character is its beginning."""
        line = position.line
        if line >= len(self.lines):
            return Position(len(self.lines) - 1, len(self.lines[-1]))
        content = self.lines[line].rstrip("\r\n")
        return Position(line, code_points(content, position.character, self.encoding))

    def word_before(self, position: Position) -> tuple[str, Position]:
        """The letters, digits and underscores that end at a wire position, and the one where they begin."""
        line, character = self.locate(position)
        before = self.lines[line][:character]
        size = next((size for size, char in enumerate(reversed(before)) if not _in_word(char)), len(before))
        return before[character - size :], self.wire(Position(line, character - size))

    def wire(self, position: Position) -> Position:
        """The position in code points, in the client's unit."""
        before = self.lines[position.line][: position.character]
        return Position(position.line, units(before, self.encoding))

    def snapshot(self, cursor: Position, until: Position | None = None) -> Snapshot:
        """The document at a cursor (code points). With `until`, the text between the two belongs to neither side."""
        end = until or cursor
        head, tail = self.lines[cursor.line], self.lines[end.line]
        return Snapshot(
            uri=self.uri,
            language_id=self.language_id,
            version=self.version,
            prefix="".join([*self._near(range(cursor.line - 1, -1, -1))[::-1], head[: cursor.character]]),
            suffix="".join([tail[end.character :], *self._near(range(end.line + 1, len(self.lines)))]),
            cursor=cursor,
        )

    def _near(self, order: range) -> list[str]:
        """The lines in that order, until they hold enough."""
        near, size = [], 0
        for line in order:
            if size >= _REACH:
                break
            near.append(self.lines[line])
            size += len(near[-1])
        return near

    def _replace(self, start: Position, end: Position, text: str) -> None:
        first, last = start.line, end.line + 1  # the lines that are made anew
        piece = self.lines[first][: start.character] + text + self.lines[end.line][end.character :]
        # An edit can bring \r and \n together, and then the two are one line end. It cannot happen at the piece's end:
        # that is the end of an old line, or of the text.
        if first > 0 and piece.startswith("\n") and self.lines[first - 1].endswith("\r"):
            first -= 1
            piece = self.lines[first] + piece
        lines = split_lines(piece)
        if last < len(self.lines):
            lines.pop()  # the empty text after the piece's line end: there the next old line begins
        self.lines[first:last] = lines


class Documents:
    """The documents a client has open, by exact uri: `a%20b` and `a%2520b` are two, as are two untitled buffers."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._open: dict[str, Document] = {}

    def open(self, uri: str, language_id: str, version: int, text: str) -> Document:
        """Take a document; opening it again replaces it."""
        self._open[uri] = Document(uri, language_id, version, text, self._encoding)
        return self._open[uri]

    def change(self, uri: str, version: int, changes: Iterable[Change]) -> list[Edit]:
        """Make the changes in their order; those to a document never opened are nobody's."""
        document = self._open.get(uri)
        return [] if document is None else [document.apply(change, version) for change in changes]

    def close(self, uri: str) -> None:
        self._open.pop(uri, None)

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Document]:
        return iter(self._open.values())


def split_lines(text: str) -> list[str]:
    """The lines of a text with their line ends; the last has none and may be empty."""
    lines = _LINE.findall(_joined(text))
    if not lines or line_end(lines[-1]):
        lines.append("")
    return lines


def _joined(text: str) -> str:
    """The text with halves of surrogate pairs that came in one after the other made one character."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def line_end(line: str) -> str:
    if line.endswith("\r\n"):
        return "\r\n"
    return line[-1:] if line.endswith(("\n", "\r")) else ""


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def indentation(line: str) -> str:
    """The white space that a line begins with, without its line end."""
    content = line.rstrip("\r\n")
    return content[: len(content) - len(content.lstrip())]


def code_points(line: str, character: int, encoding: Encoding) -> int:
    """How many code points of `line` the first `character` units hold; a partial one does not count."""
    if encoding == "utf-32" or line.isascii():
        return min(character, len(line))
    if encoding == "utf-8":
        data = line.encode("utf-8", "surrogatepass")
        cut = min(character, len(data))
        while 0 < cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut -= 1
        return len(data[:cut].decode("utf-8", "surrogatepass"))
    data = line.encode("utf-16-le", "surrogatepass")
    cut = min(2 * character, len(data))
    if 0 < cut < len(data) and data[cut - 1] & 0xFC == 0xD8 and data[cut + 1] & 0xFC == 0xDC:
        cut -= 2  # between the halves of a pair
    return len(data[:cut].decode("utf-16-le", "surrogatepass"))


def units(text: str, encoding: Encoding) -> int:
    """The length of `text` in the client's unit."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
