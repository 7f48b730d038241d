"""vLLM's CPU build on the embedded target, with n-gram speculation: the local text, and cancelling ends its work.

SPECTER_VLLM names the Python of an environment that has vLLM; `get_vllm.sh` makes one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from asking import LONG, REQUESTS, metrics, remote, text_of

from engine.config import EngineConfig
from engine.engines import make_engine
from engine.request import CompletionRequest

pytestmark = [pytest.mark.remote, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("SPECTER_VLLM", ROOT / ".cache" / "vllm" / "bin" / "python"))
START_S = 300


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there; run tests/remote/get_vllm.sh DIR and set SPECTER_VLLM=DIR/bin/python")
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, "-m", "lsp_server", "export", str(folder)], check=True, cwd=ROOT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--model", str(folder / "target"), "--served-model-name", "embedded-target", "--max-model-len", "1024"]
    options += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    options += ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}']
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | quiet
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
    try:
        _wait(server, port, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if server.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    pytest.fail(f"vLLM did not start: {log.read_text(errors='replace')[-2000:]}")


async def test_its_text_is_the_local_engines(url: str) -> None:
    there = await remote(url)
    here = make_engine(EngineConfig(dtype="float32", draft="none"))
    await here.load()
    for request in REQUESTS:
        text = await text_of(there, request)
        assert text.strip()
        assert text == await text_of(here, request)
    assert there.server is not None
    assert (there.server.kind, there.server.context, there.server.streams) == ("vllm", 1024, True)
    there.close()
    here.close()


async def test_cancelling_ends_its_work_as_its_own_metrics_say(url: str) -> None:
    engine = await remote(url)
    async with aclosing(engine.stream(LONG)) as chunks:
        async for chunk in chunks:
            if chunk.text:
                break
        assert (await metrics(engine)).running == 1
    left = time.perf_counter()
    while (await metrics(engine)).running:
        assert time.perf_counter() - left < 10  # a step of a CPU build; the rest of the tokens takes longer
        await asyncio.sleep(0.005)
    print(f"cancel to idle {1000 * (time.perf_counter() - left):.0f} ms")
    engine.close()


async def test_it_speculates_and_says_so(url: str) -> None:
    engine = await remote(url)
    await text_of(engine, replace(LONG, max_tokens=64))
    found = await metrics(engine)
    assert found.speculates
    assert found.drafted is not None
    assert found.accepted is not None
    assert 0 <= found.accepted <= found.drafted
    assert found.drafted > 0
    engine.close()


async def test_a_marker_in_the_text_is_plain_with_its_own_tokenizer(url: str) -> None:
    engine = await remote(url, None)
    request = CompletionRequest("MARK = '<|fim_middle|>'\n", "\n", "a.py")
    server = engine.server
    assert server is not None
    sent = (await server.layout.fields(engine.preview(request)))["prompt"]
    middle = (
        await engine.client.post(
            "/tokenize", {"model": server.model, "prompt": "<|fim_middle|>", "add_special_tokens": False}, api=False
        )
    )["tokens"]
    assert isinstance(sent, list)
    assert sent.count(*middle) == 1
    engine.close()
