"""Holes cut from real source files: the text around a cursor and what its author wrote there."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["line", "block", "function", "prose", "other"]

SOURCE = (".py", ".js", ".ts", ".tsx", ".jsx", ".rs", ".go", ".java", ".c", ".h", ".cpp", ".rb")
_LONGEST_FILE = 400_000  # characters; longer ones are data or generated
_BOUNDARY = re.compile(r"(?<=[\s.(,=\[{:_])(?=\S)")  # where people pause: before a word, behind a bracket or a dot


@dataclass(frozen=True, slots=True)
class Hole:
    """`kind` "line": from a pause inside a line to its end; "block": 2 to 5 whole lines of an indentation or deeper;
    "function": what stands under a Python function's head; "prose": the rest of a comment's line, from a word on;
    "other": a line as above, of another language than Python.
    """

    path: str
    kind: Kind
    prefix: str
    middle: str
    suffix: str


def cut(
    folder: Path,
    count: int,
    seed: int,
    suffixes: Sequence[str] = (".py",),
    kinds: Sequence[Kind] = ("line", "block"),
) -> list[Hole]:
    """`count` holes, the kinds in turn, at most one of each kind a file; the same for the same files and seed.

    Raises ValueError if the folder does not hold enough source.
    """
    holes = cut_up_to(folder, count, seed, suffixes, kinds)
    _require(holes, count, str(folder), suffixes)
    return holes


def cut_up_to(
    folder: Path, count: int, seed: int, suffixes: Sequence[str], kinds: Sequence[Kind] = ("line", "block")
) -> list[Hole]:
    """As `cut`, but fewer if the folder does not hold enough source; those of a smaller `count` are the first."""
    rng = random.Random(seed)
    files = source_files(folder, suffixes)
    rng.shuffle(files)
    return list(_holes(files, folder, rng, count, kinds))


def cut_packages(
    folders: Sequence[Path], count: int, seed: int, suffixes: Sequence[str] = SOURCE
) -> dict[Path, list[Hole]]:
    """`count` holes in all, as many of each folder as it has, up to an equal share. Raises ValueError."""
    found = {folder: cut_up_to(folder, count, seed, suffixes) for folder in folders}
    left, shares = count, dict[Path, list[Hole]]()
    for place, folder in enumerate(sorted(found, key=lambda folder: len(found[folder]))):
        shares[folder] = found[folder][: -(-left // (len(found) - place))]
        left -= len(shares[folder])
    _require([hole for holes in shares.values() for hole in holes], count, ", ".join(map(str, folders)), suffixes)
    return shares


def _require(holes: Sequence[Hole], count: int, where: str, suffixes: Sequence[str]) -> None:
    if len(holes) < count:
        raise ValueError(
            f"{where} gives {len(holes)} holes of {count}; name a folder with more {'/'.join(suffixes)} files"
        )


def some_hole(name: str, text: str, rng: random.Random) -> Hole | None:
    """A line or a block of one text; None if it has none."""
    kind: Kind = "line" if rng.random() < 0.5 else "block"
    span = _line(text, rng) if kind == "line" else _block(text, rng)
    if span is None:
        return None
    start, end = span
    return Hole(name, kind, text[:start], text[start:end], text[end:])


def source_files(folder: Path, suffixes: Sequence[str] = SOURCE) -> list[Path]:
    """In a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes and _is_source(path, folder))


def read(path: Path) -> str | None:
    """The text with `\n` for line ends; None if there is none to be had."""
    try:
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if len(text) <= _LONGEST_FILE else None


def _is_source(path: Path, folder: Path) -> bool:
    """Not what is installed into a library's folder beside it, which differs from machine to machine."""
    return "site-packages" not in path.relative_to(folder).parts and path.is_file()


def _holes(files: list[Path], folder: Path, rng: random.Random, count: int, kinds: Sequence[Kind]) -> Iterator[Hole]:
    made = 0
    for path in files * len(kinds):
        if made == count:
            return
        kind = kinds[made % len(kinds)]
        if "other" in kinds and (kind == "other") == (path.suffix == ".py"):
            continue
        text = read(path)
        if text is None:
            continue
        span = _CUTS[kind](text, rng)
        if span is not None:
            start, end = span
            made += 1
            yield Hole(path.relative_to(folder).as_posix(), kind, text[:start], text[start:end], text[end:])


def _line(text: str, rng: random.Random) -> tuple[int, int] | None:
    lines = [match for match in re.finditer(r"[^\n]+", text) if match.group().strip() and len(match.group()) <= 160]
    for match in rng.sample(lines, min(len(lines), 20)):
        indent = len(match.group()) - len(match.group().lstrip())
        pauses = [at for pause in _BOUNDARY.finditer(match.group()) if (at := pause.start()) > indent]
        if pauses:
            return match.start() + rng.choice(pauses), match.end()
    return None


def _block(text: str, rng: random.Random) -> tuple[int, int] | None:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for first in rng.sample(range(len(lines)), min(len(lines), 60)):
        indent = _indent(lines[first])
        wanted, last = rng.randint(2, 5), first
        while last - first + 1 < wanted and last + 1 < len(lines) and _belongs(lines[last + 1], indent):
            last += 1
        if _belongs(lines[first], 0) and last > first:
            return starts[first] + indent, starts[last] + len(lines[last].rstrip("\n"))
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _belongs(line: str, indent: int) -> bool:
    return bool(line.strip()) and _indent(line) >= indent


def _function(text: str, rng: random.Random) -> tuple[int, int] | None:
    heads = list(re.finditer(r"^([ \t]*)def \w+\(.*\).*:\n", text, re.MULTILINE))
    for head in rng.sample(heads, min(len(heads), 20)):
        start = end = head.end()
        for line in text[start:].splitlines(keepends=True):
            if not _belongs(line, len(head[1]) + 1):
                break
            end += len(line)
        if end > start:
            return start + _indent(text[start:end]), end - text[start:end].endswith("\n")
    return None


def _prose(text: str, rng: random.Random) -> tuple[int, int] | None:
    comments = list(re.finditer(r"^[ \t]*# \w[^\n]{30,}$", text, re.MULTILINE))
    if not comments:
        return None
    comment = rng.choice(comments)
    words = [word.start() for word in re.finditer(r"(?<= )\w", comment.group())][2:]
    return (comment.start() + rng.choice(words), comment.end()) if words else None


_CUTS = {"line": _line, "block": _block, "function": _function, "prose": _prose, "other": _line}
