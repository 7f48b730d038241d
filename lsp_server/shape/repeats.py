"""Rules against saying again what stands below the cursor, or what was just said."""

from __future__ import annotations

import math
import re

from lsp_server.shape.reading import Reading, Ruling, Stop


def suffix_line(reading: Reading) -> Ruling:
    """A line that the document has next is not suggested again."""
    place = reading.place
    below = [text for text in place.below if text][:2]
    if not below or not any(char.isalnum() for char in below[0]):
        return Ruling(None, len(reading.text))
    wanted = below if _HEAD.match(below[0]) else below[:1]
    lines = [line for line in reading.lines if line.text.strip()]
    texts = [(place.line if line.start == 0 else "") + line.text.rstrip() for line in lines]
    for number, line in enumerate(lines):
        said = texts[number : number + len(wanted)]
        last, ended = len(said) - 1, lines[number + len(said) - 1].ended
        agrees = said[last] == wanted[last] if ended else wanted[last].startswith(said[last])
        if said[:last] != wanted[:last] or not agrees:
            continue
        if ended and len(said) == len(wanted):
            return reading.ends_before(line, lines[number + last].end + 1)
        if number + len(said) == len(lines):
            return reading.goes_on(line)
    return Ruling(None, len(reading.text))


_HEAD = re.compile(r"\s*(?:@|#|\[|//|/?\*)")  # what many things begin with: a decorator, an attribute, a comment


def last_repeat(reading: Reading) -> int:
    """Of a text that has come to its end: where it begins to say no more than the document's next line."""
    line, following = reading.lines[-1], next((text for text in reading.place.below if text), "")
    text = reading.place.line + line.text if len(reading.lines) == 1 else line.text
    same = text.rstrip() == following and any(char.isalnum() for char in following)
    return len(reading.text[: line.start].rstrip()) if same else len(reading.text)


def loop(reading: Reading) -> Ruling:
    """What comes for the third time in a row, a line or some lines, is a model going in circles."""
    lines = [line for line in reading.lines if line.text.strip()]
    texts = [line.text.rstrip() for line in lines]
    if texts and lines[0].start == 0:
        texts[0] = reading.place.line + texts[0]
    certain = len(reading.text)
    for end in range(3, len(lines) + 1):
        for period in range(1, end // 3 + 1):
            first, second, third = (texts[end - n * period : end - (n - 1) * period] for n in (3, 2, 1))
            if first == second == third and _says_something(third) and lines[end - 1].ended:
                return reading.ends_before(lines[end - period], lines[end - 1].end + 1)
    for period in range(1, len(lines) // 2 + 1):
        for begun in range(1, period + 1):  # lines of the third round, the last of them perhaps in part
            start = len(lines) - begun
            if start >= 2 * period and _third_round(texts, start, period):
                certain = min(certain, reading.goes_on(lines[start]).certain)
    return Ruling(None, certain)


def _third_round(texts: list[str], start: int, period: int) -> bool:
    first, second = texts[start - 2 * period : start - period], texts[start - period : start]
    *whole, last = texts[start:]
    return (
        first == second
        and _says_something(first)
        and whole == first[: len(whole)]
        and first[len(whole)].startswith(last)
    )


def _says_something(lines: list[str]) -> bool:
    return any(char.isalnum() for line in lines for char in line)


def stutter(reading: Reading) -> Ruling:
    """The same few characters over and over within a line."""
    stop, certain = None, len(reading.text)
    for line in reading.lines:
        for match in _AGAIN.finditer(line.text):
            unit, start = match[1], match.start()
            needed = len(unit) * max(_TIMES, math.ceil(_LONG / len(unit)))
            if any(char.isalpha() for char in unit) and line.text.startswith(unit * (needed // len(unit)), start):
                found = Stop(line.start + start + needed, line.start + start + 2 * len(unit))
                stop = found if stop is None else min(stop, found)
    last = reading.lines[-1]
    for size in range(_UNIT[0], min(_UNIT[1], len(last.text) // 2) + 1):
        start = _since(last.text, size)
        if len(last.text) - start > 2 * size and any(char.isalpha() for char in last.text[start : start + size]):
            certain = min(certain, last.start + start + 2 * size)
    return Ruling(stop, certain)


def _since(text: str, size: int) -> int:
    """Where the stretch begins at the text's end in which every character is the one `size` places before it."""
    at = len(text)
    while at > size and text[at - 1] == text[at - 1 - size]:
        at -= 1
    return at - size


_UNIT = (3, 40)  # characters that come again
_TIMES, _LONG = 4, 60  # how often at the least, and how many characters in all: tables have rows of equal numbers
_AGAIN = re.compile(r"(?=(.{3,40}?)\1{3})")
