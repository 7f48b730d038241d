"""Three servers for the whole folder, each started once: one for an editor on stdio, one on TCP for editors of every
position encoding, one for raw bytes.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from .buffer import ENCODINGS
from .client import EditorClient
from .raw_client import RawClient, completion_params
from .server import ENVIRONMENT, LISTENING, READY_S, TCP_COMMAND

WORKSPACE = Path(__file__).parent / "workspace"


@pytest.fixture(scope="session")
def workspace() -> Path:
    return WORKSPACE


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def editor() -> AsyncIterator[EditorClient]:
    """An editor that counts in UTF-16, as VS Code does, with its own server."""
    client = await EditorClient().start(folder=WORKSPACE.as_uri())
    await client.ready()
    yield client
    await client.end()
    assert client._server is not None
    assert client._server.returncode == 0


@pytest.fixture(scope="session")
def tcp_server() -> Iterator[tuple[str, int]]:
    """The address of a server for several clients."""
    process = subprocess.Popen(TCP_COMMAND, stderr=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stderr is not None
    watchdog = threading.Timer(READY_S, process.kill)  # readline() waits without a bound
    watchdog.start()
    line = process.stderr.readline().decode()
    watchdog.cancel()
    found = LISTENING.search(line)
    assert found, f"no address: {line!r}"
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    yield found[1], int(found[2])
    process.terminate()
    try:
        process.wait(10.0)
    finally:
        process.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=ENCODINGS)
async def encoded(request: pytest.FixtureRequest, tcp_server: tuple[str, int]) -> AsyncIterator[EditorClient]:
    """An editor of each position encoding, all on one server."""
    client = await EditorClient((request.param,)).connect(*tcp_server)
    await client.ready()
    assert client.encoding == request.param
    yield client
    await client.end()


@pytest.fixture(scope="session")
def raw() -> Iterator[RawClient]:
    """A server that gets bytes and must answer them whatever they are."""
    with RawClient() as client:
        yield client.start()
        client.open("file:///w/last.py", "")
        last = client.request("textDocument/inlineCompletion", completion_params("file:///w/last.py"))
        assert client.ask("shutdown") is None
        client.notify("exit")
        assert client.wait_exit(3.0) == 0
        assert len(client.replies(last)) == 1, "shutdown and exit leave no request without its reply"
