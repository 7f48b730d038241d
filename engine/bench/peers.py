"""What others make of the same weights and prompts: transformers' generate, and llama.cpp's server if there is one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from engine import threads
from engine.config import EngineConfig
from engine.devices import device_for
from engine.loading import LoadedPair, best_dtype
from engine.sources import is_embedded, sources

TRANSFORMERS = ("transformers_plain", "transformers_assisted", "transformers_lookup")
LLAMA_CPP = "llama_cpp"
_LOOKUP_TOKENS = 8
_START_S = 60.0


class Run(NamedTuple):
    """One prompt, continued greedily to a fixed number of tokens. ms_per_token leaves the first answer out, as ours."""

    token_ids: tuple[int, ...]
    ttft_ms: float
    total_ms: float
    ms_per_token: float


Peer = Callable[[Sequence[int], int], Run]


@contextmanager
def peers(pair: LoadedPair, config: EngineConfig, wanted: bool = True) -> Iterator[dict[str, Peer]]:
    """By their names in the document, if wanted. Their weights are loaded a second time, in the fastest dtype."""
    if not wanted:
        yield {}
        return
    with ExitStack() as running:
        found = transformers_peers(pair, config)
        if (llama := running.enter_context(_llama_server())) is not None:
            found[LLAMA_CPP] = llama
        yield found


def transformers_peers(pair: LoadedPair, config: EngineConfig) -> dict[str, Peer]:
    device = device_for(config.device)
    dtype = best_dtype(device) if config.dtype == "auto" else config.dtype
    _, target_source, draft_source = sources(config, None)
    target = _model("target", target_source, device, getattr(torch, dtype))
    ends = sorted(pair.end_tokens)
    variants: dict[str, dict[str, Any]] = {TRANSFORMERS[0]: {}}
    if draft_source is not None:
        variants[TRANSFORMERS[1]] = {"assistant_model": _model("draft", draft_source, device, getattr(torch, dtype))}
    variants[TRANSFORMERS[2]] = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}

    def peer(options: dict[str, Any]) -> Peer:
        return lambda prompt, tokens: _generate(target, prompt, tokens, ends, options)

    return {name: peer(options) for name, options in variants.items()}


def _model(role: Any, source: str, device: torch.device, dtype: torch.dtype) -> Any:
    from engine import checkpoints  # seconds

    if is_embedded(source):
        return checkpoints.embedded_model(role, dtype).to(device)
    runner: Any = checkpoints.load_checkpoint(role, source, device, dtype)[0].runner
    return runner.model


class _Watch:
    """What generate calls with new tokens: notes when the first came, and how many at once."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.first_tokens = 0
        self._seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if self._seen_prompt and self.first_s is None:
            self.first_s, self.first_tokens = time.perf_counter(), value.numel()
        self._seen_prompt = True

    def end(self) -> None:
        pass


def _generate(model: Any, prompt: Sequence[int], tokens: int, ends: list[int], options: dict[str, Any]) -> Run:
    torch.set_num_threads(threads.MOST)
    watch, ids = _Watch(), torch.tensor([list(prompt)], device=model.device)
    started = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,  # bans what ends a text, in all variants
            eos_token_id=ends,
            pad_token_id=ends[0],
            streamer=watch,
            **options,
        )
    total_s = time.perf_counter() - started
    new = tuple(output[0, len(prompt) :].tolist())
    ttft_s = (watch.first_s or started + total_s) - started
    behind = max(len(new) - watch.first_tokens, 1)
    return Run(new, 1000 * ttft_s, 1000 * total_s, 1000 * (total_s - ttft_s) / behind)


@contextmanager
def _llama_server() -> Iterator[Peer | None]:
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
