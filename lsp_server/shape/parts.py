"""Texts in more than one language, and texts of which only a part is read."""

from __future__ import annotations

import re

from lsp_server.shape.languages import Language, language_of
from lsp_server.shape.lexer import Frame

TAG_BEGUN = re.compile(r"<([A-Za-z][\w:.-]*)[^<>]*\Z")
_PARTS = re.compile(r"<(script|style)\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+#-]*).*$", re.MULTILINE)


def part_of(language: Language, prefix: str, suffix: str) -> tuple[Language, str, str]:
    """In a page's script or style and in a fenced block, that language and what of the text is written in it."""
    if language.blocks == "tags":
        *_, last = [None, *_PARTS.finditer(prefix)]
        end = f"</{last[1].lower()}" if last is not None else ""
        if last is None or end in prefix[last.end() :].lower():
            return language, prefix, suffix
        inner = language_of("javascript" if end == "</script" else "css")
        return inner, prefix[last.end() :], suffix[: len(suffix.lower().partition(end)[0])]
    if language.name == "markdown":
        fences = list(_FENCE.finditer(prefix.rpartition("\n")[0]))
        if len(fences) % 2 == 0:
            return language, prefix, suffix
        close = _FENCE.search(suffix, suffix.find("\n") + 1)
        inner = language_of(fences[-1][1].lower(), f"x.{fences[-1][1].lower()}")
        return inner, prefix[fences[-1].end() + 1 :], suffix[: close.start() if close else len(suffix)]
    return language, prefix, suffix


def open_at(text: str, language: Language) -> tuple[Frame, ...]:
    """The string or comment of several lines that a long document's first part ends in, as counting tells."""
    for span in language.spans:
        opens = re.split(r"\(\?", span.opens)[0].replace("\\", "")
        if span.kind == "comment" and span.multiline and text.rfind(opens) > text.rfind(span.closes):
            return (Frame(opens, span.closes, 0, span),)
        if span.multiline and opens == span.closes and (len(opens) > 1 or opens == "`") and text.count(opens) % 2:
            return (Frame(opens, span.closes, 0, span),)
    return ()
