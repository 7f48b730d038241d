"""The process: its exit codes, its end, its standard streams and its port."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from lsp_fakes import PipeClient

from lsp_server import serve
from lsp_server.serve import ServeError, serve_tcp
from lsp_server.transport import frame

SERVER = str(Path(__file__).parent / "fake_server.py")
Start = Callable[..., "asyncio.Future[PipeClient]"]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[asyncio.subprocess.Process] = []

    async def start(*arguments: str) -> PipeClient:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = await asyncio.create_subprocess_exec(sys.executable, SERVER, *arguments, **pipes)
        running.append(process)
        return PipeClient(process)

    yield start
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def exit_code(client: PipeClient) -> int:
    async with asyncio.timeout(15):
        return await client.process.wait()


async def greet(client: PipeClient, process_id: int | None = None) -> None:
    client.send(id=0, method="initialize", params={"processId": process_id, "capabilities": {}})
    assert "result" in await client.reply(0)
    client.send(method="initialized", params={})


@pytest.mark.parametrize("shutdown", [True, False])
async def test_exit(start: Start, shutdown: bool) -> None:
    client = await start()
    await greet(client)
    if shutdown:
        client.send(id=1, method="shutdown")
        await client.reply(1)
    client.send(method="exit")
    assert await exit_code(client) == (0 if shutdown else 1)


async def test_the_end_of_stdin(start: Start) -> None:
    client = await start()
    await greet(client)
    client.process.stdin.close()
    assert await exit_code(client) == 1


async def test_the_death_of_the_client(start: Start) -> None:
    editor = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
    client = await start()
    await greet(client, editor.pid)
    client.send(id=1, method="specter/stats")
    await client.reply(1)
    editor.kill()
    assert await exit_code(client) == 1
    await editor.wait()


async def test_a_client_of_another_container_is_served(start: Start) -> None:
    client = await start()
    await greet(client, 2**22 + 5)
    client.send(id=1, method="specter/stats")
    assert "result" in await client.reply(1)


async def test_a_port_for_several_clients(start: Start) -> None:
    server = await start("0")
    line = (await server.process.stderr.readline()).decode()
    port = int(re.fullmatch(r"specter: listening on 127\.0\.0\.1:(\d+)\n", line)[1])
    clients = []
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        clients.append(TcpClient(reader, writer))
    for client in clients:
        await greet(client)
    clients[0].send(method="exit")
    assert await clients[0].receive_end()
    clients[1].send(id=1, method="specter/stats")
    assert "result" in await clients[1].reply(1)
    other = await start(str(port))
    assert await exit_code(other) == 1
    said = (await other.process.stderr.read()).decode()
    assert said.strip() == f"cannot listen on 127.0.0.1:{port} ({os.strerror(errno.EADDRINUSE)}); choose another port"


@pytest.mark.parametrize("smuggled", [True, False])
async def test_a_web_page_reaches_nothing(start: Start, smuggled: bool) -> None:
    """Failed with HTTP's headers taken for LSP's: the body of a POST was a message, or held frames."""
    server = await start("0")
    port = int((await server.process.stderr.readline()).decode().rpartition(":")[2])
    params = {"processId": None, "capabilities": {}}
    initialize = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    body = b"x\r\n\r\n" + frame(initialize) if smuggled else initialize
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    async with asyncio.timeout(15):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("token", ["a-secret-of-16-letters", "another-one-of-them", "", None, 5])
async def test_a_client_without_the_token_is_sent_away(start: Start, token: object) -> None:
    """And one that has it is not told that it is no setting. Seen to fail with the check left out."""
    server = await start("0", "a-secret-of-16-letters")
    port = int((await server.process.stderr.readline()).decode().rpartition(":")[2])
    client = TcpClient(*await asyncio.open_connection("127.0.0.1", port))
    options = {} if token is None else {"token": token}
    params = {"processId": None, "capabilities": {}, "initializationOptions": options}
    client.send(id=0, method="initialize", params=params)
    reply = await client.reply(0)
    if token == "a-secret-of-16-letters":
        assert "result" in reply
        client.send(method="initialized", params={})
        client.send(id=1, method="specter/stats")
        messages = []
        while (message := await client.receive()) is not None and message.get("id") != 1:
            messages.append(message)
        assert "result" in (message or {})
        assert not [message for message in messages if message.get("method") == "window/showMessage"]
    else:
        assert reply["error"]["code"] == -32803
        assert "a-secret" not in str(reply)
        assert await client.receive_end()


def test_beyond_this_machine_with_a_token_only(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    async def tcp(address: str, port: int, token: str | None, make_host: object) -> None:
        started.append(address)

    monkeypatch.setattr(serve, "_tcp", tcp)
    assert serve_tcp("0.0.0.0", 0, {}, "a-secret-of-16-letters") == 0
    assert started == ["0.0.0.0"]
    with pytest.raises(ServeError, match="--token-file"):
        serve_tcp("0.0.0.0", 0, {})


class TcpClient(PipeClient):
    """PipeClient asks for a process with two pipes; a connection has the same two."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(type("Connection", (), {"stdin": writer, "stdout": reader})())  # type: ignore[arg-type]

    async def receive_end(self) -> bool:
        async with asyncio.timeout(15):
            while await self.receive() is not None:
                pass
        return True


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "::", ""])
def test_other_machines_are_refused(host: str) -> None:
    with pytest.raises(ServeError, match=r"use 127\.0\.0\.1"):
        serve_tcp(host, 0, {})


def test_the_start_imports_neither_pygls_nor_torch() -> None:
    """What keeps `initialize` fast: 0.15 s on an idle machine, of which Python and asyncio are most."""
    late = ("pygls", "lsprotocol", "torch", "engine")
    code = f"import sys, lsp_server.serve; print([name for name in {late} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
