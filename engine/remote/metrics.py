"""What a server tells of itself under `/metrics`, in Prometheus' text form: vLLM, SGLang, llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.remote.client import Client
from engine.remote.errors import RemoteError

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)", re.ASCII)
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
_DRAFTED = ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens")
_ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens")
_SPECULATES = ("vllm:spec_decode", "sglang:spec_")


@dataclass(frozen=True, slots=True)
class Metrics:
    """At one moment; None is what the server does not tell. `drafted` and `accepted` count since it started."""

    running: float | None
    waiting: float | None
    drafted: float | None
    accepted: float | None
    speculates: bool | None  # None: nothing is known of it


async def read_metrics(client: Client) -> Metrics | None:
    """None if there are none."""
    try:
        return parse_metrics(await client.get_text("/metrics"))
    except RemoteError:
        return None


def parse_metrics(text: str) -> Metrics | None:
    """None if it holds no samples of a server that is known."""
    samples = _samples(text)

    def first(names: tuple[str, ...]) -> float | None:
        return next((samples[name] for name in names if name in samples), None)

    if first(_RUNNING) is None:
        return None
    speculates = any(name.startswith(_SPECULATES) for name in samples)
    known = any(name.startswith(("vllm:", "sglang:")) for name in samples)
    return Metrics(first(_RUNNING), first(_WAITING), first(_DRAFTED), first(_ACCEPTED), speculates if known else None)


def _samples(text: str) -> Mapping[str, float]:
    """Sums over the labels, by name."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            try:
                sums[match[1]] = sums.get(match[1], 0.0) + float(match[3])
            except ValueError:
                continue
    return sums
