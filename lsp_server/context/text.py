"""Text as models take it."""

from __future__ import annotations

import re

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def normalised(text: str) -> str:
    """With `\\n` for line ends and no half surrogate pairs, which no tokenizer takes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        text.encode()  # ten times as fast as looking for what it cannot encode
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text
