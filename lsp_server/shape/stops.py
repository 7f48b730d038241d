"""Rules for where a suggestion is complete: with its line, its statement, its block, its brackets."""

from __future__ import annotations

import itertools
import re

from lsp_server.shape import repeats
from lsp_server.shape.lexer import Stray
from lsp_server.shape.nesting import columns
from lsp_server.shape.reading import Line, Reading, Rule, Ruling, Stop


def line_end(reading: Reading) -> Ruling:
    """One line: it ends where it ends."""
    first = reading.lines[0]
    if reading.place.kind == "line" and first.ended:
        return Ruling(Stop(first.end + 1, first.end), first.end)
    return Ruling(None, len(reading.text))


def closers(reading: Reading) -> Ruling:
    """A bracket or quote that the document closes itself ends the text.

    Where the line goes on with something else than that, the text may close and open again: `a) + (b` before `)`.
    """
    rest, closing = reading.place.rest.lstrip(), _one_too_many(reading)
    if closing is not None:
        follows = not rest or rest.startswith(closing.closes) or "\n" in reading.text[closing.at :]
        if follows or not closing.fits:
            return Ruling(Stop(closing.at + 1, closing.at), closing.at)
        return Ruling(None, closing.at)
    return Ruling(None, len(reading.text) - _begun_closer(reading))


_BEGUN_TAG = re.compile(r"<(?:/[^<>]*)?\Z")


def _begun_closer(reading: Reading) -> int:
    """How many of the last characters may be the first of the `*/` that ends what the cursor is in."""
    if reading.place.language.blocks == "tags" and (begun := _BEGUN_TAG.search(reading.text)) is not None:
        return len(reading.text) - begun.start()
    last = reading.lexed.open[-1] if reading.lexed.open else None
    closes = last.closes if last is not None and last.span is not None and last.at < 0 else ""
    return next((size for size in range(len(closes) - 1, 0, -1) if reading.text.endswith(closes[:size])), 0)


def block_end(reading: Reading) -> Ruling:
    """A line indented less than the block is not of it, nor what follows the bracket that closes the block."""
    place, text = reading.place, reading.text
    if place.kind != "block":
        return Ruling(None, len(text))
    floor = place.indent if not place.blank or place.line or place.empty_body else columns(_first_line(reading))
    opener = place.language.opener
    for before, line in itertools.pairwise(reading.lines):
        depth = reading.depths.get(line.start - 1, 0)
        if place.may_close and -depth >= place.may_close:
            if opener is None or not opener.search(reading.lexed.code[before.start : before.end].rstrip(" \t\0")):
                return Ruling(Stop(line.start, line.start - 1), line.start - 1)
            floor = place.base + 1
        if depth > 0 or place.language.blocks not in ("indent", "words") or not line.text.strip():
            continue
        if columns(line.text) < floor or (columns(line.text) == floor and _ends_a_list(reading, line)):
            return _dedent(reading, line, floor)
    return Ruling(None, len(text))


def _dedent(reading: Reading, line: Line, floor: int) -> Ruling:
    """The line that stands outside of the block: its closing word, if the document has none there yet."""
    word = reading.place.language.closing_word
    start = line.start + len(line.text) - len(line.text.lstrip())
    if word is None or not reading.place.empty_body:
        return reading.ends_before(line, start + 1)
    below = next((text for text in reading.place.below if text.strip()), "")
    if columns(below) == columns(line.text) and word.match(below.lstrip()):
        return reading.ends_before(line, start + 1)
    if line.ended:
        return Ruling(Stop(line.end + 1, line.end), line.end)
    return reading.goes_on(line)


def _ends_a_list(reading: Reading, line: Line) -> bool:
    """A list of YAML may be indented as its key is; then the next key ends it."""
    is_list = reading.place.language.name == "yaml" and _first_line(reading).lstrip().startswith("-")
    return is_list and not line.text.lstrip().startswith("-")


def _first_line(reading: Reading) -> str:
    return next((line.text for line in reading.lines if line.text.strip()), "")


def statement_end(reading: Reading) -> Ruling:
    """A statement begun before the cursor ends with its line, unless it goes on: brackets, a body, an operator."""
    place, language = reading.place, reading.place.language
    if place.kind != "statement":
        return Ruling(None, len(reading.text))
    code = reading.lexed.code
    for number, line in enumerate(reading.lines[:-1]):
        if reading.depths.get(line.end, 0) > -place.pending:
            continue
        whole = (place.line if number == 0 else "") + code[line.start : line.end]
        whole = whole.rstrip(" \t\0")
        if not whole.strip() or (language.unfinished is not None and language.unfinished.search(whole)):
            continue
        opens = language.opener is not None and language.opener.search(whole) is not None
        line_ends_it = language.blocks in ("indent", "prose") or whole.endswith(";")
        if line_ends_it and not opens and columns(whole) <= place.indent:
            return Ruling(Stop(line.end + 1, line.end), line.end)
        following = next((later for later in reading.lines[number + 1 :] if later.text.strip()), None)
        if following is None:
            return Ruling(None, line.end)
        ruling = _after(reading, line, following)
        if ruling is not None:
            return ruling
    return Ruling(None, len(reading.text))


_GOING_ON = (
    *("else", "elif", "except", "finally", "case", "catch", "while", "when", "rescue", "ensure", "elsif", "in"),
    *("instanceof", "throws", "where", "then", "do", "end", "fi", "done", "esac"),
)


def _after(reading: Reading, line: Line, following: Line) -> Ruling | None:
    """What the line after a finished one says: None if the statement goes on there."""
    place, language = reading.place, reading.place.language
    if columns(following.text) > place.indent:
        return None
    word = following.text.strip()
    start = following.start + len(following.text) - len(following.text.lstrip())
    if not following.ended and word.isalpha() and any(more.startswith(word) for more in _GOING_ON):
        return reading.goes_on(following)
    for more in (language.goes_on, language.closing_word):
        if more is not None and more.match(word):
            return None
    if len(word) == 1 and not following.ended and not word.isalnum():
        return reading.goes_on(following)
    return reading.ends_before(following, start + 2)


def paragraph_end(reading: Reading) -> Ruling:
    """A blank line at the block's own level ends what is added to a block that has something already."""
    place = reading.place
    if place.kind != "block" or (place.empty_body and place.language.blocks != "prose"):
        return Ruling(None, len(reading.text))
    first = columns(place.line) if place.line else columns(_first_line(reading))
    last: Line | None = None
    blank = False
    for line in reading.lines:
        if not line.text.strip():
            blank = blank or (last is not None and line.ended)
            continue
        if blank and last is not None and reading.depths.get(last.end, 0) <= 0 and columns(line.text) <= first:
            return Ruling(Stop(line.end - len(line.text.lstrip()) + 1, last.end), last.end)
        blank, last = False, line
    return Ruling(None, len(reading.text))


def unbalanced(reading: Reading) -> int:
    """Of a text that has come to its end: where it begins to close more than what it may."""
    closing, may = _one_too_many(reading), reading.place.may_close
    before, after = ([frame.closes for frame in frames] for frames in (reading.place.open, reading.lexed.open))
    opened_again = any(after == before[: len(before) - count] for count in range(may + 1))
    if closing is None or (opened_again and all(stray.fits for stray in reading.lexed.stray)):
        return len(reading.text)
    return closing.at


def _one_too_many(reading: Reading) -> Stray | None:
    """The first thing that ends what the document ends itself, or what is not open at all."""
    stray, may = reading.lexed.stray, reading.place.may_close
    return next((one for number, one in enumerate(stray) if number >= may or not one.fits), None)


RULES: dict[str, Rule] = {
    "line_end": line_end,
    "closers": closers,
    "block_end": block_end,
    "statement_end": statement_end,
    "paragraph_end": paragraph_end,
    "suffix_line": repeats.suffix_line,
    "loop": repeats.loop,
    "stutter": repeats.stutter,
}
