"""The harness's own copy of a document. Positions are counted by arithmetic on the whole text, slowly and in a way of
its own: nothing here comes from the server.
"""

from __future__ import annotations

import re
from typing import Any

ENCODINGS = ("utf-8", "utf-16", "utf-32")
_UNIT_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
_LINE_END = re.compile("\r\n|\r|\n")


def units(text: str, encoding: str) -> int:
    """The length of `text` as a client with this position encoding counts it."""
    codec, size = _UNIT_BYTES[encoding]
    return len(text.encode(codec, "surrogatepass")) // size


def split_lines(text: str) -> list[str]:
    """The lines without their line ends, of which LSP knows three."""
    return _LINE_END.split(text)


class Buffer:
    """One text; offsets are code points, positions are in the encoding the client and the server agreed on."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding

    def position(self, offset: int) -> dict[str, int]:
        """The wire position of an offset. Between \\r and \\n there is none."""
        assert not self.splits_line_end(offset), f"no position between \\r and \\n ({offset})"
        before = self.text[:offset]
        ends = before.count("\n") + before.count("\r") - before.count("\r\n")
        line_start = max(before.rfind("\n"), before.rfind("\r")) + 1
        return {"line": ends, "character": units(before[line_start:], self.encoding)}

    def offset(self, position: dict[str, int]) -> int:
        """The offset of a wire position that exists; ValueError for any other, where an editor would have to guess."""
        starts = [0, *(end.end() for end in _LINE_END.finditer(self.text))]
        if position["line"] >= len(starts):
            raise ValueError(f"no such line: {position}")
        start = starts[position["line"]]
        line = split_lines(self.text[start:])[0]
        for length in range(len(line) + 1):
            if units(line[:length], self.encoding) == position["character"]:
                return start + length
        raise ValueError(f"no such character: {position}")

    def splits_line_end(self, offset: int) -> bool:
        return self.text[offset - 1 : offset + 1] == "\r\n" if offset else False

    def replace(self, start: int, end: int, text: str) -> dict[str, Any]:
        """Make an edit; returns it as a content change of `didChange`."""
        change = {"range": {"start": self.position(start), "end": self.position(end)}, "text": text}
        self.text = self.text[:start] + text + self.text[end:]
        return change

    def replace_all(self, text: str) -> dict[str, Any]:
        self.text = text
        return {"text": text}
