"""Runs the language server on stdio or TCP until its clients are gone.

Imports neither pygls nor the engine, so that `initialize` is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

from lsp_server.connection import Connection
from lsp_server.connection import Session as ClientSession
from lsp_server.engine_host import EngineHost
from lsp_server.handshake import Client
from lsp_server.transport import Output, PipeOutput, StreamOutput, read_pipe, read_stream

_RELEASE_S = 1.0
Watch = Callable[[int | None], None]


class ServeError(Exception):
    """The server cannot start; one line for the user, with the fix."""


def serve_stdio(overrides: Mapping[str, object], make_host: Callable[..., EngineHost] = EngineHost) -> int:
    """Serve the client on stdin and stdout; `overrides` are EngineConfig's fields and win over the client's settings.

    Ends the process: with 0 after `shutdown`, with 1 without. Returns only if it is interrupted.
    """
    stdin, stdout = _private_stdio()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_stdio(stdin, stdout, lambda: make_host(overrides)))
    return 1


def serve_tcp(
    host: str,
    port: int,
    overrides: Mapping[str, object],
    token: str | None = None,
    make_host: Callable[..., EngineHost] = EngineHost,
) -> int:
    """Serve clients, each with its own documents, until interrupted; those that do not give the token are sent away.

    Raises ServeError, also for an address beyond this machine without a token.
    """
    if token is None:
        _require_loopback(host)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_tcp(host, port, token, lambda: make_host(overrides)))
    return 0


async def _stdio(stdin: int, stdout: int, make_host: Callable[[], EngineHost]) -> NoReturn:
    host = make_host()
    connection = Connection(_opener(host, lambda pid: _when_gone(pid, connection.lost)))
    connection.attach(PipeOutput(stdout, connection.lost))
    read_pipe(stdin, connection.receive, connection.lost)
    code = await connection.ended
    await connection.close()
    _end(host, code)


async def _tcp(address: str, port: int, token: str | None, make_host: Callable[[], EngineHost]) -> None:
    host = make_host()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A TCP client may run on another machine or in a container: its process id means nothing here.
        connection = Connection(_opener(host, lambda _: None), strict=True, token=token)
        connection.attach(StreamOutput(writer, connection.lost))
        reading = asyncio.create_task(read_stream(reader, connection.receive))
        reading.add_done_callback(lambda _: connection.lost())
        await connection.ended
        await connection.close()
        reading.cancel()

    try:
        server = await asyncio.start_server(client, address, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error.strerror  # asyncio's is a sentence with the address
        raise ServeError(f"cannot listen on {address}:{port} ({reason}); choose another port") from error
    bound = server.sockets[0].getsockname()
    print(f"specter: listening on {bound[0]}:{bound[1]}", file=sys.stderr, flush=True)
    try:
        await server.serve_forever()
    finally:
        _end(host, 0)


def _opener(host: EngineHost, watch: Watch) -> Callable[[Client, Output], ClientSession]:
    def open_session(client: Client, output: Output) -> ClientSession:
        from lsp_server.server import Server  # pygls: 0.6 s, after the client has its answer

        watch(client.process_id)
        return Server(client, host, output)

    return open_session


def _when_gone(pid: int | None, gone: Callable[[], None]) -> None:
    """Call `gone` on the event loop when the client's process has ended: some die without closing our stdin."""
    if pid is None:
        return
    import psutil  # type: ignore[import-untyped]

    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError, OverflowError):
        return  # not there from the start: a process of another container; the end of stdin will do
    loop = asyncio.get_running_loop()

    def wait() -> None:
        with contextlib.suppress(psutil.Error, RuntimeError):
            process.wait()
            loop.call_soon_threadsafe(gone)

    threading.Thread(target=wait, name="specter-parent", daemon=True).start()


def _end(host: EngineHost, code: int) -> NoReturn:
    """Free the models, for a moment, and end the process: a server that outlives its editor holds the GPU.

    Not by the interpreter's own end. It waits for a load, and with torch imported it takes seconds on a busy machine:
    2.5 to 4.5 s were measured from the end of stdin to that of the process, and 0.2 s of them up to here.
    """
    release = threading.Thread(target=host.release, daemon=True)
    release.start()
    release.join(_RELEASE_S)
    sys.stderr.flush()
    os._exit(code)


def _private_stdio() -> tuple[int, int]:
    """stdin and stdout for the protocol alone: what anything else prints goes to stderr, and reads find nothing."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return stdin, stdout


def _require_loopback(host: str) -> None:
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return
    raise ServeError(f"{host} is not on this machine only; use 127.0.0.1, ::1 or localhost, or give --token-file")
