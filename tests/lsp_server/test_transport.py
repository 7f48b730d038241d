"""Frames out of any stream of bytes, and a client that does not read."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.transport import ForeignError, FrameDecoder, FrameError, PipeOutput, frame, read_pipe


def decode(*pieces: bytes) -> list[bytes | str]:
    decoder = FrameDecoder()
    return [str(f) if isinstance(f, FrameError) else f for piece in pieces for f in decoder.feed(piece)]


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30), min_size=1))
def test_frames_survive_any_cuts(bodies: list[bytes], cuts: list[int]) -> None:
    """Seen to fail with a decoder that looks for the header's end in each piece alone."""
    stream, pieces, at = b"".join(map(frame, bodies)), [], 0
    while at < len(stream):
        pieces.append(stream[at : at + cuts[len(pieces) % len(cuts)]])
        at += len(pieces[-1])
    assert decode(*pieces) == bodies


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"CONTENT-LENGTH :  2 \r\n\r\n",
        b"Content-Length: 2\n\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\r\nX-Unknown: yes\r\n\r\n",
        b"\r\n\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_headers_as_clients_write_them(header: bytes) -> None:
    assert decode(header + b"{}" + frame(b"next")) == [b"{}", b"next"]


@pytest.mark.parametrize(
    "header",
    [
        b"X: 1\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: two\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"garbage" * 5000 + b"\r\n\r\n",
    ],
)
def test_a_bad_header_is_one_error_and_the_next_frame_is_found(header: bytes) -> None:
    assert decode(header + frame(b"next")) == ["a frame has a header Content-Length with a number", b"next"]


@pytest.mark.parametrize(
    "header",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"Content-Length: 2\r\nOrigin: http://example.org\r\n",
        b"Content-Length: 2\r\nX-Unknown: yes\r\n\r\n",
        b"Content-Length : 2\nx\n\n",
        b"a" * 10_000,
    ],
)
@given(cut=st.integers(0, 200))
def test_a_strict_decoder_takes_nothing_after_what_is_not_lsp(header: bytes, cut: int) -> None:
    decoder = FrameDecoder(strict=True)
    stream = frame(b"before") + header + frame(b"after")
    bodies: list[object] = []

    def feed() -> None:
        for piece in (stream[:cut], stream[cut:]):
            bodies.extend(decoder.feed(piece))

    with pytest.raises(ForeignError):
        feed()
    assert bodies in ([], [b"before"])


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_a_strict_decoder_takes_what_lsp_defines(bodies: list[bytes], size: int) -> None:
    decoder = FrameDecoder(strict=True)
    typed = b"CONTENT-TYPE: application/vscode-jsonrpc; charset=utf-8\r\n"
    stream = b"".join(typed * (len(body) % 2) + frame(body) for body in bodies)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [body for piece in pieces for body in decoder.feed(piece)] == bodies


def test_a_wrong_length_costs_one_message() -> None:
    """The rest of a body that was longer than it said hangs before the next header."""
    assert decode(b'Content-Length: 5\r\n\r\n{"jsonrpc": "2.0"}' + frame(b"next")) == [b'{"jso', b"next"]


def test_a_body_too_long_is_skipped_and_not_kept() -> None:
    decoder = FrameDecoder()
    size = 1 << 29
    (error,) = decoder.feed(b"Content-Length: %d\r\n\r\n" % size)
    assert isinstance(error, FrameError)
    piece = b"x" * (1 << 20)
    for _ in range(size // len(piece)):
        assert list(decoder.feed(piece)) == []
        assert len(decoder._buffer) == 0
    assert list(decoder.feed(frame(b"next"))) == [b"next"]


def test_a_header_without_end_is_not_kept() -> None:
    """Seen to fail without the cut of the buffer."""
    decoder = FrameDecoder()
    for _ in range(1000):
        assert list(decoder.feed(b"x" * 1000)) == []
    assert len(decoder._buffer) < 20_000
    assert list(decoder.feed(frame(b"next"))) == [b"next"]


async def test_a_client_that_does_not_read_blocks_nothing() -> None:
    """Seen to fail (it hangs) with a write on the event loop."""
    reading, writing = os.pipe()
    output = PipeOutput(writing, lambda: None)
    body = b"x" * 1000
    for _ in range(1000):
        output.write(body)
    assert not output.idle
    async with asyncio.timeout(5):
        await output.close()
    expected = frame(body) * 1000
    got = b""
    while len(got) < len(expected):
        got += await asyncio.to_thread(os.read, reading, 1 << 16)
    assert got == expected
    os.close(reading)


async def test_a_client_that_closed_its_end_is_lost() -> None:
    reading, writing = os.pipe()
    lost = asyncio.Event()
    output = PipeOutput(writing, lost.set)
    os.close(reading)
    output.write(b"x")
    async with asyncio.timeout(5):
        await lost.wait()
        await output.close()


async def test_reading_ends_with_the_pipe() -> None:
    reading, writing = os.pipe()
    got, ended = bytearray(), asyncio.Event()
    read_pipe(reading, got.extend, ended.set)
    os.write(writing, b"hello")
    os.close(writing)
    async with asyncio.timeout(5):
        await ended.wait()
    assert got == b"hello"
