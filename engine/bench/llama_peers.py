"""llama.cpp's server as a peer: the one of the package xllamacpp on the embedded pair, or one that you name.

Those of a package are built for any processor of the last ten years; one built for this machine may be twice as fast.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine import threads
from engine.bench.llama_server import installed, llama_server
from engine.bench.peer import Peer, Run

if TYPE_CHECKING:
    from engine.bench.gguf_file import Kind

LLAMA_CPP = "llama_cpp"  # what the names of all of them begin with
_START_S = 60.0
_KINDS: tuple[Kind, ...] = ("f16", "q8_0")
# Its best with this pair: long drafts that end where the draft model is not sure.
_SPECULATION = ("--draft-length", "8", "--draft-p-min", "0.75")


@contextmanager
def llama_peers(embedded: bool, kinds: Sequence[Kind] = _KINDS) -> Iterator[dict[str, Peer]]:
    """By their names, each a server of its own: `llama_cpp` for llama-server on the PATH or $LLAMA_SERVER, over
    $LLAMA_MODEL, a GGUF file of the same target. For the embedded pair also those of xllamacpp: for each kind of
    weights one that decodes plainly and one that speculates."""
    with ExitStack() as running:
        found = dict[str, Peer]()
        if (named := running.enter_context(_named_server())) is not None:
            found[LLAMA_CPP] = named
        if embedded and installed():
            folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
            for kind in kinds:
                found |= running.enter_context(_packaged(folder, kind))
        yield found


@contextmanager
def _packaged(folder: Path, kind: Kind) -> Iterator[dict[str, Peer]]:
    from engine.bench.gguf_file import write_gguf  # where only torch and transformers are, there is no gguf

    target, draft = (folder / f"{role}.{kind}.gguf" for role in ("target", "draft"))
    write_gguf(target, "target", kind)
    write_gguf(draft, "draft", kind)
    options = ("--threads", str(threads.MOST), "--context", "4096")
    with (
        llama_server(target, *options) as plain,
        llama_server(target, *options, "--draft", str(draft), *_SPECULATION) as speculative,
    ):
        print(f"llama.cpp {kind} on {target.stat().st_size / 1e6:.0f} MB, built for {plain.build}", flush=True)
        yield {
            f"{LLAMA_CPP}_{kind}": _LlamaServer(plain.url),
            f"{LLAMA_CPP}_{kind}_draft": _LlamaServer(speculative.url),
        }


@contextmanager
def _named_server() -> Iterator[Peer | None]:
    """llama-server on the PATH or $LLAMA_SERVER, over $LLAMA_MODEL, a GGUF file of the same target; None without."""
    binary = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    weights = os.environ.get("LLAMA_MODEL")
    if not binary or not weights:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    most = str(threads.MOST)
    command = [binary, "-m", weights, "--port", str(port), "-c", "4096", "-np", "1", "-t", most, "-tb", most]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield _LlamaServer(f"http://127.0.0.1:{port}") if _answers(port, server) else None
        finally:
            server.terminate()


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    end = time.perf_counter() + _START_S
    while time.perf_counter() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.2)
    return False


class _LlamaServer:
    """Takes the prompt as ids, cold, and its own times: HTTP is left out."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, prompt: Sequence[int], tokens: int) -> Run:
        body = {
            "prompt": list(prompt),
            "n_predict": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
        }
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/completion", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as reply:
            answer = json.load(reply)
        times = answer["timings"]
        ttft = float(times["prompt_ms"])
        each = float(times["predicted_per_token_ms"])
        return Run(tuple(answer.get("tokens", ())), ttft, ttft + float(times["predicted_ms"]), each)
