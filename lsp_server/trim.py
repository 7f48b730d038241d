"""Rules about the suggested text alone: what of it is worth showing at this place of this document.

Pure. Applied to every partial text as well as to the last: the result for a longer text extends that for a shorter.
"""

from __future__ import annotations


def tidy(suggestion: str, suffix: str, finished: bool = True) -> str:
    """The part of `suggestion` to show before `suffix` (the text after the cursor); "" if there is none."""
    if not suggestion.strip() or repeats(suggestion, suffix, finished):
        return ""
    kept = without_overlap(suggestion, suffix.partition("\n")[0])
    return kept if kept.strip() else ""


def without_overlap(suggestion: str, rest_of_line: str) -> str:
    """Without the end of its last line that the cursor's line has already: `equal|` before `|` is `equal`."""
    if not rest_of_line.strip():
        return suggestion
    last_line = suggestion.rpartition("\n")[2]
    for size in range(min(len(last_line), len(rest_of_line)), 0, -1):
        if last_line.endswith(rest_of_line[:size]):
            return suggestion[: len(suggestion) - size]
    return suggestion


def repeats(suggestion: str, suffix: str, finished: bool) -> bool:
    """Whether the suggestion is only what comes next in the document anyway; one that still grows, whether it may be.

    Brackets alone do not count: two blocks may well end one after the other.
    """
    said, follows = suggestion.strip(), suffix.lstrip()
    if not finished or not follows.startswith(said):
        return follows.startswith(said)
    return any(char.isalnum() for char in said) and follows[len(said) : len(said) + 1] in ("", "\n")
