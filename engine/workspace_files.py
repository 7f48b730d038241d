"""Fills a pair's workspace index from a folder, for commands that have no editor to tell them what is open."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.holes import read, source_files
from engine.loading import LoadedPair

_BATCH = 1 << 16  # tokens put into the index at once


def fill_workspace(pair: LoadedPair, folder: Path, files: Iterable[Path] | None = None) -> None:
    """Puts `files`, all source files under `folder` if None, into the pair's index, by their paths in it, in place of
    what was there. What cannot be read is left out."""
    pair.workspace.clear()
    batch, size = dict[str, list[int]](), 0
    for path in source_files(folder) if files is None else files:
        text = read(path)
        if text is None:
            continue
        name = path.relative_to(folder).as_posix()
        batch[name] = pair.prompts.plain(text)
        size += len(batch[name])
        if size >= _BATCH:
            pair.workspace.update(batch)
            batch, size = {}, 0
    pair.workspace.update(batch)
