"""Which files other files may be shown from, and their text: inside the workspace folders wherever links lead, not
excluded, regular, small, UTF-8.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from lsp_server import exclusions
from lsp_server.context.text import normalised

LARGEST_FILE = 200_000  # bytes; what is longer is data or generated
_LONGEST_LINE = 1000  # characters; minified code helps nobody
_KEPT_FILES = 128


@dataclass(frozen=True, slots=True)
class Workspace:
    """The client's folders (uris) and the user's globs at one moment."""

    folders: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    roots: tuple[Path, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        roots = (local_path(folder) for folder in self.folders)
        object.__setattr__(self, "roots", tuple(root for root in roots if root is not None))

    def allows(self, uri: str) -> bool:
        """Whether text of this file may be shown to the model while another is completed. Reads the disk: a link is
        off limits if its own name is or what it leads to is."""
        path = local_path(uri)
        if path is None or exclusions.excluded(uri, self.folders, self.exclude):
            return False
        real, roots = Path(os.path.realpath(path)), [Path(os.path.realpath(root)) for root in self.roots]
        if not any(real.is_relative_to(root) for root in roots):
            return False
        return not exclusions.excluded(real.as_uri(), [root.as_uri() for root in roots], self.exclude)

    def path(self, uri: str) -> str:
        """The path as the model should see it."""
        return exclusions.relative_path(uri, self.folders) or exclusions.path_of(uri).rpartition("/")[2]


class Files:
    """Texts of files on disk, kept until their time of change or size is another. For any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int], str | None]] = OrderedDict()
        self._lock = Lock()

    def read(self, path: Path, workspace: Workspace) -> str | None:
        """The text with `\\n` for line ends; None if there is none that may be shown."""
        try:
            if not workspace.allows(path.as_uri()):
                return None
            status = path.stat()
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None and kept[0] == stamp:
                self._kept.move_to_end(path)
                return kept[1]
        text = _text(path)
        with self._lock:
            self._kept[path] = (stamp, text)
            while len(self._kept) > _KEPT_FILES:
                self._kept.popitem(last=False)
        return text


def local_path(uri: str) -> Path | None:
    """Of a `file:` uri."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or not path or "\0" in path:
        return None
    return Path(path.lstrip("/") if os.name == "nt" else path)  # file:///c:/a is c:/a


def resolved(uri: str) -> str:
    """The uri of what a link leads to; of what is no link or no file, the uri itself. Reads the disk."""
    path = local_path(uri)
    try:
        real = None if path is None else Path(os.path.realpath(path))
        return uri if real is None or real == path else real.as_uri()
    except (OSError, ValueError):
        return uri


def showable(lines: Sequence[str]) -> bool:
    """Whether a text is one that people wrote: no binary, nothing minified."""
    return not any(len(line) > _LONGEST_LINE or "\0" in line for line in lines)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    if len(data) > LARGEST_FILE or not showable(text.splitlines()):
        return None
    return normalised(text)
