"""Bytes of a client to frames, and frames to bytes. Knows nothing of what is in a frame.

Reading and writing of stdio have a thread each: a blocking read must not wait for a free worker, and a client that
stops reading must not stop the event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Queue
from typing import Protocol

_CHUNK = 1 << 16
_MAX_BODY = 1 << 28  # 256 MiB: longer frames are skipped, not kept
_MAX_HEADER = 1 << 13
_MAX_UNREAD = 1 << 26  # 64 MiB of replies that nobody reads: the client is taken for dead
_GRACE_S = 1.0  # for the last replies of an ending process

_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
# Not anchored to the beginning of a line: after a body with a wrong length, the next header is found at its tail.
_CONTENT_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*(?:\r?\n|\Z)", re.IGNORECASE)
_LSP_HEADER = re.compile(rb"content-(?:length|type)[ \t]*:", re.IGNORECASE)


class FrameError(Exception):
    """Bytes that are no frame; the message says why."""


class ForeignError(Exception):
    """The other end does not speak LSP."""


class FrameDecoder:
    """Cuts a stream of bytes into message bodies, and finds the next frame after bytes that are none.

    With `strict`, it raises ForeignError instead at the first header that LSP does not define: a web page can send
    an HTTP request to a port of this machine, and its body could hold frames.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self._buffer = bytearray()
        self._body: int | None = None  # length of the body that is arriving
        self._skip = 0  # bytes of a body too long to keep

    def feed(self, data: bytes) -> Iterator[bytes | FrameError]:
        """The frames that `data` completes."""
        self._buffer += data
        while True:
            if self._skip:
                skipped = min(self._skip, len(self._buffer))
                del self._buffer[:skipped]
                self._skip -= skipped
            if self._body is None:
                header = self._take_header()
                if header is None:
                    return
                yield from self._start(header)
            elif len(self._buffer) < self._body:
                return
            else:
                body = bytes(self._buffer[: self._body])
                del self._buffer[: self._body]
                self._body = None
                yield body

    def _take_header(self) -> bytes | None:
        blank = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        del self._buffer[:blank]  # blank lines between frames harm nobody
        end = _BLANK_LINE.search(self._buffer)
        if self._strict:
            self._require_lsp(len(self._buffer) if end is None else end.start(), whole=end is not None)
        if end is None:
            del self._buffer[:-_MAX_HEADER]
            return None
        header = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        return header

    def _require_lsp(self, end: int, whole: bool) -> None:
        """Of a header that has not arrived whole, the lines that have."""
        lines = self._buffer[:end].split(b"\n")
        if len(self._buffer) > _MAX_HEADER and not whole:
            raise ForeignError
        if not all(_LSP_HEADER.match(line) for line in (lines if whole else lines[:-1])):
            raise ForeignError

    def _start(self, header: bytes) -> Iterator[FrameError]:
        lengths = _CONTENT_LENGTH.findall(header)
        if not lengths:
            yield FrameError("a frame has a header Content-Length with a number")
        elif int(lengths[-1]) > _MAX_BODY:
            self._skip = int(lengths[-1])
            yield FrameError("the frame is too long")
        else:
            self._body = int(lengths[-1])


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Output(Protocol):
    """Where the frames for one client go. Never blocks the event loop."""

    def write(self, body: bytes) -> None: ...

    @property
    def idle(self) -> bool:
        """Whether everything written has left the process."""

    async def close(self) -> None:
        """Let what was written leave, for a moment, and end."""


class PipeOutput:
    """Frames to a file descriptor. `lost` is called on the event loop when the client is gone."""

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._queue: Queue[bytes | None] = Queue()
        self._unread = 0  # bytes written; the thread counts down
        self._lock = threading.Lock()
        self._drained = asyncio.Event()
        threading.Thread(target=self._drain, name="specter-stdout", daemon=True).start()

    def write(self, body: bytes) -> None:
        data = frame(body)
        with self._lock:
            self._unread += len(data)
            flooded = self._unread > _MAX_UNREAD
        if flooded:
            self._lost()
        else:
            self._queue.put(data)

    @property
    def idle(self) -> bool:
        return self._unread == 0

    async def close(self) -> None:
        self._queue.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._drained.wait()

    def _drain(self) -> None:
        try:
            while (data := self._queue.get()) is not None:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
                with self._lock:
                    self._unread -= len(data)
        except OSError:
            _post(self._loop, self._lost)
        _post(self._loop, self._drained.set)


class StreamOutput:
    """Frames to a TCP client; asyncio's transport does the buffering."""

    def __init__(self, stream: asyncio.StreamWriter, lost: Callable[[], None]) -> None:
        self._stream = stream
        self._lost = lost

    def write(self, body: bytes) -> None:
        if self._stream.is_closing():
            return
        self._stream.write(frame(body))
        if self._stream.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._lost()

    @property
    def idle(self) -> bool:
        return self._stream.transport.get_write_buffer_size() == 0

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_GRACE_S):
                self._stream.close()
                await self._stream.wait_closed()
        except (OSError, TimeoutError):
            self._stream.transport.abort()


def read_pipe(fd: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
    """Read a file descriptor to its end in a thread of its own; both functions are called on the event loop."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        # os.read, not sys.stdin: a daemon thread within a buffered read holds a lock that the exit waits for.
        with suppress(OSError):
            while data := os.read(fd, _CHUNK):
                _post(loop, received, data)
        _post(loop, ended)

    threading.Thread(target=read, name="specter-stdin", daemon=True).start()


async def read_stream(stream: asyncio.StreamReader, received: Callable[[bytes], None]) -> None:
    """Read a TCP client to its end."""
    with suppress(OSError):  # a reset is an end, too
        while data := await stream.read(_CHUNK):
            received(data)


def _post(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    with suppress(RuntimeError):  # the loop has ended before its threads
        loop.call_soon_threadsafe(function, *args)
