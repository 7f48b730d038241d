"""What the model should see: a snapshot becomes the engine's request.

Line ends are `\\n` here, so that a file gives the same tokens whatever its line ends are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsp_server import exclusions
from lsp_server.documents import Snapshot
from lsp_server.settings import Settings

if TYPE_CHECKING:  # the engine takes seconds to import
    from engine.config import EngineConfig
    from engine.request import CompletionRequest

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def build(
    snapshot: Snapshot, folders: Sequence[str], settings: Settings, config: EngineConfig, typed: str = ""
) -> CompletionRequest:
    """The request for a completion at the snapshot's cursor; `typed` is text to take as written before it."""
    from engine.request import CompletionRequest

    suffix = normalised(snapshot.suffix)
    return CompletionRequest(
        prefix=normalised(snapshot.prefix) + normalised(typed),
        suffix=suffix,
        path=exclusions.relative_path(snapshot.uri, folders) or _name(snapshot.uri),
        repository=_repository(folders),
        sampling=config.sampling,
        max_tokens=config.max_tokens,
        stop=("\n",) if _single_line(settings, suffix) else (),
        deadline_s=settings.deadline_ms / 1000,
    )


def normalised(text: str) -> str:
    """With `\\n` for line ends and no half surrogate pairs, which no tokenizer takes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        text.encode()  # ten times as fast as looking for what it cannot encode
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text


def _single_line(settings: Settings, suffix: str) -> bool:
    """In the middle of a line, more lines would push its rest down."""
    return settings.multiline == "never" or (settings.multiline == "auto" and bool(suffix.partition("\n")[0].strip()))


def _repository(folders: Sequence[str]) -> str:
    return _name(folders[0]) if folders else ""


def _name(uri: str) -> str:
    """The last part of a path: what is above it is none of the model's business."""
    return exclusions.path_of(uri).rstrip("/").rpartition("/")[2]
