"""Which engine a configuration gets, and a pair on this machine for a server's bad times."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from calls import REQUEST, complete, until
from toy_server import Reply, Request, ToyServer

from engine.config import EngineConfig
from engine.engines import EngineWithFallback, make_engine
from engine.interface import Engine, EngineError
from engine.remote import RemoteEngine
from engine.request import CompletionRequest
from lsp_server.cli import main
from lsp_server.engine_host import EngineHost
from lsp_server.generation import BackendError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyServer]:
    monkeypatch.setattr("engine.remote.service._FIRST_PAUSE_S", 0.05)
    toy = ToyServer().start()
    yield toy
    toy.close()


def test_a_pair_is_a_fallback_only_if_it_was_named() -> None:
    assert not EngineConfig.of({"server_url": "http://x"}).fallback
    assert EngineConfig.of({"server_url": "http://x", "pair": "embedded"}).fallback
    assert not EngineConfig.of({"pair": "embedded"}).fallback
    assert isinstance(make_engine(EngineConfig.of({"server_url": "http://x"})), RemoteEngine)


_WITHOUT_TORCH = """
import asyncio, sys
from engine.config import EngineConfig
from engine.engines import import_for, make_engine
from engine.request import CompletionRequest

async def main():
    config = EngineConfig.of({"server_url": sys.argv[1]})
    import_for(config)
    engine = make_engine(config)
    await engine.load()
    print("".join([chunk.text async for chunk in engine.stream(CompletionRequest("x = '<|fim_middle|>'", "\\n"))]))

asyncio.run(main())
sys.exit("torch" in sys.modules)
"""


def test_a_servers_completions_need_no_torch(server: ToyServer) -> None:
    command = [sys.executable, "-c", _WITHOUT_TORCH, server.url]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "a + b"), done.stderr


async def leave(engine: Engine) -> None:
    """At the first text of what goes on for long."""
    numbers = "TABLE = {\n" + "".join(f"    'name_{number}': {number},\n" for number in range(50))
    async with aclosing(engine.stream(CompletionRequest(numbers, "", "table.py", max_tokens=400))) as chunks:
        assert (await anext(chunks)).text


async def test_the_pair_answers_while_the_server_is_down(server: ToyServer) -> None:
    engine = make_engine(EngineConfig.of({"server_url": server.url, "pair": "embedded"}))
    assert isinstance(engine, EngineWithFallback)
    told: list[str] = []
    engine.watch(lambda: told.append(engine.trouble))
    await engine.load()
    assert (await complete(engine)).pair == "toy"
    server.pieces, server.pause_s = ["x"] * 15, 0.2
    await leave(engine)
    server.stop()
    with pytest.raises(EngineError, match="cannot be reached"):
        await complete(engine)
    assert "the local pair loads" in engine.trouble
    await until(lambda: not engine.trouble, 60)
    assert (await complete(engine)).pair == "embedded"
    assert "cannot be reached" in engine.description["notice"]
    both = engine.usage()["cancelToIdleMs"]
    assert (
        0 < both["p50"] == both["max"]
    )  # of the one that the server was left with; seen to fail: only who answers now
    await leave(engine)
    await until(lambda: engine.usage()["cancelToIdleMs"]["p50"] != engine.usage()["cancelToIdleMs"]["max"])
    server.pause_s = 0.0
    server.start(server.port)
    await until(lambda: "notice" not in engine.description)
    assert (await complete(engine)).pair == "toy"

    async def hangs_up(_: Request, reply: Reply) -> None:
        reply.hang_up()

    server.wrong = hangs_up  # now the pair is there at once
    assert (await complete(engine)).pair == "embedded"
    engine.close()
    await asyncio.sleep(0.05)


async def test_a_pair_that_cannot_be_loaded_is_said_beside_the_server(server: ToyServer) -> None:
    server.stop()
    engine = make_engine(EngineConfig.of({"server_url": server.url, "target": "/nowhere"}))
    await engine.load()
    assert "cannot be reached" in engine.trouble
    assert "the local pair cannot answer: target: /nowhere" in engine.trouble
    engine.close()


def test_the_benchmark_takes_specter_and_the_raw_stream_in_turn(
    server: ToyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pieces, server.pause_s = ["x"] * 8, 0.001
    assert main(["bench", "--server-url", server.url, "--holes", "4", "--tokens", "8"]) == 0
    *rows, last = capsys.readouterr().out.splitlines()
    document = json.loads(last)
    assert len(rows) == 5
    assert document["holes"] == 4
    assert document["ttft_ms"]["specter"] >= 1
    assert document["tokens_per_second"]["raw"] > 0
    assert document["acceptance"] is None
    assert 12 <= len(server.completions) <= 15  # three a hole, and the probe's


def test_the_doctor_examines_a_server(server: ToyServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.metrics = "vllm:num_requests_running 0\nvllm:spec_decode_num_draft_tokens_total 8\n"
    server.metrics += "vllm:spec_decode_num_accepted_tokens_total 6\n"
    assert main(["doctor", "--server-url", server.url]) == 0
    report = capsys.readouterr().out
    assert "toy" in report
    assert "4096 tokens" in report
    assert "on, 75% of 8 guesses accepted" in report
    server.stop()
    assert main(["doctor", "--server-url", server.url]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_complete_has_a_server_compute(server: ToyServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = a +\n")
    server.pieces = [" b"]
    assert main(["complete", f"{tmp_path / 'a.py'}:1:8", "--server-url", server.url]) == 0
    assert capsys.readouterr().out == " b"
    server.stop()
    assert main(["complete", f"{tmp_path / 'a.py'}:1:8", "--server-url", server.url]) == 2
    error = capsys.readouterr().err
    assert error.startswith("specter: --server-url: 127.0.0.1")
    assert error.count("\n") == 1


async def test_the_server_setting_is_followed_and_its_state_is_the_hosts(server: ToyServer) -> None:
    host, other = EngineHost(), ToyServer().start()
    other.models = [{"id": "other"}]
    await host.configure("client", {"server_url": server.url})
    await until(lambda: host.health.state == "ready")
    assert host.description()["pair"] == "toy"
    await host.configure("client", {"server_url": other.url})
    await until(lambda: host.description().get("pair") == "other")
    await until(lambda: host.health.state == "ready")
    other.stop()
    with pytest.raises(BackendError, match="cannot be reached"):
        async for _ in host.stream(REQUEST):
            pass
    assert host.health.state == "error"
    assert "cannot be reached" in host.health.message
    other.start(other.port)
    await until(lambda: host.health.state == "ready")
    assert "".join([chunk.text async for chunk in host.stream(REQUEST)]) == " a + b"
    host.release()
    await asyncio.sleep(0.05)
    other.close()
