"""The two ends of a suggestion: where it meets the text before the cursor and the text after it.

Pure functions, as the rules that end a text.
"""

from __future__ import annotations

from lsp_server.shape.nesting import columns
from lsp_server.shape.place import Place
from lsp_server.shape.reading import Reading

_LONG = 3  # characters that are no coincidence


def lead(text: str, place: Place, indent: bool, space: bool) -> int:
    """How many of the text's first characters double what stands before the cursor: a space, an indentation."""
    white = len(text) - len(text.lstrip())
    if not white or not place.line:
        return 0
    if place.blank:
        return _indent_lead(text[:white], place) if indent else 0
    if not space or not place.line[-1].isspace():
        return 0
    return len(text) - len(text.lstrip(" \t"))


def _indent_lead(white: str, place: Place) -> int:
    """On a line with nothing but its indentation: lines left empty above go, and so does the indentation again."""
    last = white.rpartition("\n")[2]
    start = len(white) - len(last)
    have, need = columns(place.line), place.indent
    if start:  # the text begins another line: from its indentation, take what the cursor's line has
        return start + len(last) - len(last.removeprefix(place.line)) if last.startswith(place.line) else 0
    if have >= need:
        return len(last)
    return len(place.line) if len(last) > len(place.line) else 0  # the whole indentation anew, or what is missing


def overlap(reading: Reading, strict: bool = True) -> int:
    """Where the end of the last line begins that the cursor's line has already: `a, b|)` before `)`.

    Not `strict`, where it may begin once the text is complete.
    """
    text, rest = reading.text, reading.place.rest
    if not rest.strip():
        return len(text)
    start = text.rfind("\n") + 1
    ends, reached = [len(text)], {len(text)}
    while ends:
        end = ends.pop()
        for size in range(1, min(end - start, len(rest)) + 1):
            at = end - size
            if at not in reached and text[at:end] == rest[:size] and (not strict or _droppable(reading, at, size)):
                reached.add(at)
                ends.append(at)
    return min(reached)


def _droppable(reading: Reading, at: int, size: int) -> bool:
    """Whether the text can end at `at`: in no word, and with all its brackets closed."""
    text, rest = reading.text, reading.place.rest
    if size == len(rest) and len(rest.strip()) >= _LONG:
        return True  # the whole rest of the line, written anew
    if _one_token(text[at - 1 : at], text[at]) or _one_token(rest[size - 1], rest[size : size + 1]):
        return False
    if any(stray.at >= at for stray in reading.lexed.stray):
        return False
    kept = Reading(text[:at], reading.place)
    return len(kept.lexed.open) <= len(reading.place.open)


def _one_token(left: str, right: str) -> bool:
    """Whether two neighbours belong together: letters of a word, dots of an ellipsis."""
    if not left or not right:
        return False
    return (_word(left) and _word(right)) or (left == right and not left.isspace())


def _word(char: str) -> bool:
    return char.isalnum() or char == "_"


def trail(text: str, rest: str) -> int:
    """Where the white space at the text's end begins that nobody misses."""
    kept = len(text.rstrip())
    if not rest.strip():
        return kept
    if rest[0].isspace():
        return len(text.rstrip(" \t"))
    return len(text)
