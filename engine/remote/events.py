"""Server-sent events from raw bytes, with a bound on what a server can make us keep.

httpx's own readers have none, and its line reader ends lines at characters that JSON may hold (U+2028).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from engine.remote.errors import RemoteError

LONGEST_LINE = 1 << 20  # bytes
_DONE = "[DONE]"


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream without their ends, which are `\\n` or `\\r\\n`. Raises RemoteError for a huge one."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        *whole, last = rest.split(b"\n")
        if len(last) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in whole):
            raise RemoteError(f"the server sent a line of over {LONGEST_LINE >> 20} MB", down=False)
        for line in whole:
            yield bytes(line.removesuffix(b"\r"))
        rest = last
    if rest:
        yield bytes(rest)


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream, up to its `[DONE]`. Raises RemoteError for what is no such stream, and for one
    that ends without `[DONE]`: its text may be half of what was meant."""
    async for line in lines(chunks):
        if not line.startswith(b"data:"):
            continue  # comments that keep the connection alive, event names, ids
        data = line[5:].strip()
        if data == _DONE.encode():
            return
        yield parsed(data)
    raise RemoteError("the server's stream stopped in the middle", down=False, lost=True)


def parsed(data: bytes) -> dict[str, Any]:
    """One JSON object. Raises RemoteError."""
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise RemoteError("the server's stream is not UTF-8", down=False) from None
    except (ValueError, RecursionError):
        raise RemoteError("the server's stream holds something else than JSON", down=False) from None
    if not isinstance(value, dict):
        raise RemoteError("the server's stream holds something else than completions", down=False)
    if value.get("error"):
        raise RemoteError("the server gave up in the middle of its stream; its log says why", down=False)
    return value
