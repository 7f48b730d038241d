"""What an editor makes of an inline completion item: whether it shows it, and the text after it is accepted.

VS Code: `inlineCompletionIsVisible`, `getDefaultRange` and the text model of its source. Neovim: `Completor:show` and
`Completor:accept` of runtime/lua/vim/lsp/inline_completion.lua as in 0.12. Items are LSP items as JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .buffer import Buffer, split_lines

_WORD = re.compile(r"[^\s`~!@#$%^&*()=+\[{\]}\\|;:'\",.<>/?-]+")  # VS Code's default word pattern, without its numbers
_VSCODE_EOL = re.compile("\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Applied:
    """A buffer after an accepted completion, and the offset of the cursor in it (code points)."""

    text: str
    cursor: int


# --- VS Code ----------------------------------------------------------------------------------------------------------


def vscode(buffer: Buffer, cursor: int, item: dict[str, Any], typed: str = "") -> Applied | None:
    """The item accepted in VS Code with the cursor at an offset; None where it would not be shown.

    `typed` was typed at the cursor after the request, so the item is older than the buffer's text.
    """
    model = _Model(buffer, cursor)
    edit = _edit(model, item)
    if edit is None:
        return None
    if typed:
        edit = model.type(typed, edit)
    return model.accept(edit) if model.shows(edit) else None


@dataclass(slots=True)
class _Edit:
    """`text` in place of the columns start..end of the line `line`."""

    line: int
    start: int
    end: int
    text: str


class _Model:
    """VS Code's text model: lines, one line end for all of them, columns in UTF-16 units."""

    def __init__(self, buffer: Buffer, cursor: int) -> None:
        ends = _VSCODE_EOL.findall(buffer.text)
        self.eol = "\r\n" if ends.count("\r\n") > len(ends) / 2 else "\n"
        self.lines = [_to_units(line) for line in split_lines(buffer.text)]
        self.buffer = buffer
        place = Buffer(buffer.text, "utf-16").position(cursor)
        self.line, self.column = place["line"], place["character"]

    def columns(self, position: dict[str, int]) -> tuple[int, int]:
        """A wire position as line and column; the range must exist in the document."""
        there = Buffer(self.buffer.text, "utf-16").position(self.buffer.offset(position))
        return there["line"], there["character"]

    def default_range(self) -> tuple[int, int]:
        """From the beginning of the word at the cursor to the END of its line."""
        line = self.lines[self.line]
        word = next((word for word in _WORD.finditer(line) if word.start() <= self.column <= word.end()), None)
        return (word.start() if word else self.column), len(line)

    def type(self, text: str, edit: _Edit) -> _Edit:
        """Text typed at the cursor; a range that touches it grows."""
        units = _to_units(text)
        assert "\n" not in units, "one line"
        line = self.lines[self.line]
        self.lines[self.line] = line[: self.column] + units + line[self.column :]
        self.column += len(units)
        return _Edit(edit.line, edit.start, edit.end + len(units), edit.text)

    def shows(self, edit: _Edit) -> bool:
        replaced = self.lines[edit.line][edit.start : edit.end]
        common = _common_prefix(replaced, edit.text)
        start, original, text = edit.start + common, replaced[common:], edit.text[common:]
        if self.line != edit.line or not (original or text):
            return False
        at = max(0, self.column - start)
        text_before, text_after = text[:at], text[at:]
        original_before, original_after = original[:at], original[at:]
        if start <= _indent(self.lines[edit.line]):
            original_before, text_before = original_before.lstrip(), text_before.lstrip()
            original_after = original_after if original_before else original_after.lstrip()
            text_after = text_after if text_before else text_after.lstrip()
        return text_before.startswith(original_before) and _is_subsequence(original_after, text_after)

    def accept(self, edit: _Edit) -> Applied:
        inserted = _VSCODE_EOL.sub(self.eol, edit.text)
        before = self.eol.join([*self.lines[: edit.line], self.lines[edit.line][: edit.start]]) + inserted
        after = self.eol.join([self.lines[edit.line][edit.end :], *self.lines[edit.line + 1 :]])
        return Applied(_from_units(before + after), len(_from_units(before)))


def _edit(model: _Model, item: dict[str, Any]) -> _Edit | None:
    text = _to_units(item["insertText"])  # a snippet would be a dict, and fail here
    if "range" not in item:
        start, end = model.default_range()
        return _Edit(model.line, start, end, text)
    (line, start), (last, end) = model.columns(item["range"]["start"]), model.columns(item["range"]["end"])
    return _Edit(line, start, end, text) if line == last else None


def _to_units(text: str) -> str:
    """As JavaScript has it: one character for each UTF-16 unit."""
    data = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(data[at : at + 2], "little")) for at in range(0, len(data), 2))


def _from_units(units: str) -> str:
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _common_prefix(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _is_subsequence(word: str, text: str) -> bool:
    rest = iter(text.lower())
    return all(char in rest for char in word.lower())


# --- Neovim -----------------------------------------------------------------------------------------------------------


def neovim(buffer: Buffer, cursor: int, item: dict[str, Any]) -> Applied | None:
    """The item accepted in Neovim with the cursor at an offset; None where nothing would be shown."""
    lines, eol = _neovim_lines(buffer.text)
    new = [line.encode("utf-8", "surrogatepass") for line in item["insertText"].split("\n")]
    if "range" not in item:
        raise ValueError("0.12.0 raises \"Invalid 'buffer'\" for an item without a range")
    row, col = _byte_column(buffer, lines, item["range"]["start"])
    end_row, end_col = _byte_column(buffer, lines, item["range"]["end"])
    before, after = [*lines[:row], lines[row][:col]], [lines[end_row][end_col:], *lines[end_row + 1 :]]
    head = [*before[:-1], before[-1] + new[0], *new[1:]]
    text = _joined([*head[:-1], head[-1] + after[0], *after[1:]], eol)
    return Applied(text, len(_joined(head, eol)))


def neovim_screen(buffer: Buffer, cursor: int, item: dict[str, Any]) -> list[str]:
    """The lines on the screen from the item's line on, ghost text and all, up to where the ghost text ends."""
    lines, _ = _neovim_lines(buffer.text)
    row, col = _byte_column(buffer, lines, item["range"]["start"])
    end = _byte_column(buffer, lines, item["range"]["end"])
    first, *more = (part.encode("utf-8", "surrogatepass") for part in item["insertText"].split("\n"))
    skip = _common_prefix(lines[row][col:].decode("latin-1"), first.decode("latin-1"))
    cursor_row, cursor_col = _byte_column(buffer, lines, buffer.position(cursor))
    if row == cursor_row:
        skip = max(skip, cursor_col - col)
    ghost, at = first[skip:], col + skip
    covered = len(ghost) if (row, col) != end else 0  # an overlay hides what it lies on
    shown = lines[row][:at] + ghost + lines[row][at + covered :]
    return [line.decode("utf-8", "replace") for line in (shown, *more)]


def _neovim_lines(text: str) -> tuple[list[bytes], str]:
    """The lines of a buffer; 'fileformat' is dos if every line ends with \\r\\n."""
    lines = text.split("\n")
    dos = len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1])
    lines = [line.removesuffix("\r") for line in lines[:-1]] + lines[-1:] if dos else lines
    assert not any("\r" in line for line in lines), "Neovim has no line end \\r"
    return [line.encode("utf-8", "surrogatepass") for line in lines], "\r\n" if dos else "\n"


def _byte_column(buffer: Buffer, lines: list[bytes], position: dict[str, int]) -> tuple[int, int]:
    start = buffer.offset({"line": position["line"], "character": 0})
    before = buffer.text[start : buffer.offset(position)]
    assert position["line"] < len(lines)
    return position["line"], len(before.encode("utf-8", "surrogatepass"))


def _joined(lines: list[bytes], eol: str) -> str:
    return eol.join(line.decode("utf-8", "surrogatepass") for line in lines)
