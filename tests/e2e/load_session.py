"""What a person of the load test types: a real module, key by key, at a person's pace, the same for one seed."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass
from pathlib import Path

_STDLIB = Path(textwrap.__file__).parent
_SIZES = range(6_000, 40_000)  # bytes of a module that somebody has open
_GAP_S = 0.16  # median between two keys: 70 words a minute
_PAUSE_S = (0.8, 2.5)  # to read a suggestion, or to think
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and the seconds until the next. With `stands`, the person waits for the answer before those."""

    text: str
    gap_s: float
    stands: bool


@dataclass(frozen=True, slots=True)
class Session:
    """A document of one client, what is typed at its end, and the word that stands in no other client's document."""

    uri: str
    word: str
    text: str
    keys: tuple[Key, ...]


def sessions(count: int, seed: int) -> list[Session]:
    """One of its own for each client; modules and words are all different."""
    rng = random.Random(seed)
    modules = [path for path in sorted(_STDLIB.glob("*.py")) if path.stat().st_size in _SIZES and _plain(path)]
    words = set[str]()
    while len(words) < count:
        words.add("".join(rng.sample(_SYLLABLES, 4)))
    chosen = zip(rng.sample(modules, count), sorted(words), strict=True)
    return [
        _session(number, path, word, random.Random(f"{seed}/{number}")) for number, (path, word) in enumerate(chosen)
    ]


def _plain(path: Path) -> bool:
    """ASCII, so that every position encoding counts alike."""
    data = path.read_bytes()
    return data.isascii() and b"\t" not in data and b"\r" not in data and data.count(b"\n") > 150


def _session(number: int, path: Path, word: str, rng: random.Random) -> Session:
    """The second half of the module is typed behind the first; every few lines, one that only this client has."""
    mark = f'check_{word}("{word}")\n'
    lines = path.read_text().splitlines(keepends=True)
    half = len(lines) // 2
    keys = list[Key]()
    for at, line in enumerate(lines[half:]):
        if at % 5 == 0:
            keys += [_key(text, rng, stands=text == "(") for text in mark]
        keys += [_key(text, rng, stands=rng.random() < 0.03) for text in line]
    text = "".join(lines[:half]) + 3 * mark
    return Session(f"file:///w/load{number}_{path.name}", word, text, tuple(keys))


def _key(text: str, rng: random.Random, stands: bool) -> Key:
    gap_s = rng.uniform(*_PAUSE_S) if stands else _GAP_S * rng.lognormvariate(0.0, 0.4)
    return Key(text, gap_s, stands)
