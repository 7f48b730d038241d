"""FILE:LINE:COL on the command line, and the file there as the server would see it."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import NamedTuple

from lsp_server.commands import UserError
from lsp_server.documents import Document, Position, Snapshot, line_end

_LARGEST = 1 << 26  # bytes


class Place(NamedTuple):
    """A cursor in a file: line and column from 1, the column in characters."""

    path: Path
    line: int
    column: int


def parse(text: str) -> Place:
    """The last two numbers are the cursor: the colon of `C:\\app.py:3:7` belongs to the path."""
    match = re.fullmatch(r"(.+):(\d{1,9}):(\d{1,9})", text, re.ASCII | re.DOTALL)
    if match is None:
        raise UserError(f"{text!r} is no place in a file; give FILE:LINE:COL, as in app.py:12:5")
    return Place(Path(match[1]), int(match[2]), int(match[3]))


def snapshot(place: Place) -> Snapshot:
    """The file with its cursor. Raises UserError if there is no such text or no such place in it."""
    document = Document(place.path.absolute().as_uri(), "", 0, _text(place.path))
    lines = len(document.lines)
    if not 1 <= place.line <= lines:
        raise UserError(f"{place.path} has no line {place.line}; its lines are {_range(lines)}")
    line = document.lines[place.line - 1]
    columns = len(line) - len(line_end(line)) + 1
    if not 1 <= place.column <= columns:
        raise UserError(f"line {place.line} of {place.path} has no column {place.column}; it has {_range(columns)}")
    return document.snapshot(Position(place.line - 1, place.column - 1))


def _range(last: int) -> str:
    return f"1 to {last}" if last > 1 else "1 only"


def _text(path: Path) -> str:
    data = _bytes(path)
    if b"\0" in data:
        raise UserError(f"{path} is a binary file (it holds NUL bytes); give a text file in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start}); convert it to UTF-8 first"
        ) from None


def _bytes(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"{path} is a folder; give a file in it")
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may never end
            raise UserError(f"{path} is a device or a pipe; give a regular file")
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)  # not by its size: files of /proc say 0
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the path of a file, as in app.py:12:5") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read ({reason}); check its name and permissions") from None
    if len(data) > _LARGEST:
        raise UserError(f"{path} is larger than {_LARGEST >> 20} MB; give a file that people wrote")
    return data
