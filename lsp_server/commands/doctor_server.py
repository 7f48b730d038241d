"""What the doctor says of a server: its model, what it takes, and how fast it answers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from lsp_server.commands.serving import Serving

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.record import Completion
    from engine.remote.probe import Server
    from engine.request import CompletionRequest

_RUNS = 5


class Found(NamedTuple):
    """One line of the report."""

    name: str
    text: str


def examine(config: EngineConfig, request: CompletionRequest) -> Iterator[Found]:
    """Raises UserError if completions are not to be had of it, ConfigError for a key that cannot be read."""
    from engine.remote import RemoteEngine

    with Serving(config.replace(fallback=False)) as serving:
        engine = serving.engine
        assert isinstance(engine, RemoteEngine)
        server = engine.server
        assert server is not None
        locked = "encrypted" if engine.client.encrypted else "not encrypted"
        yield Found("server", f"{engine.client.host}, {server.kind or 'OpenAI-compatible'}, {locked}")
        yield Found("model", server.model)
        yield Found(
            "window", f"{server.context} tokens{'' if server.context_reported else ', assumed: it does not say'}"
        )
        yield Found("fim", server.layout.name)
        yield Found("streaming", "yes" if server.streams else "no: completions come in one piece")
        yield Found("speculation", _speculation(server))
        runs = [_last(serving, request) for _ in range(_RUNS)]
        first_ms, speed = (
            statistics.median(run.ttft_ms for run in runs),
            statistics.median(run.tokens_per_second for run in runs),
        )
        yield Found("latency", f"first text after {first_ms:.0f} ms, {speed:.0f} tokens/s, medians of {_RUNS}")


def _speculation(server: Server) -> str:
    metrics = server.metrics
    if metrics is None or metrics.speculates is None:
        return "not reported"
    if not metrics.speculates:
        return "off; see the README for how to switch it on"
    if not metrics.drafted or metrics.accepted is None:
        return "on"
    return f"on, {metrics.accepted / metrics.drafted:.0%} of {metrics.drafted:.0f} guesses accepted so far"


def _last(serving: Serving, request: CompletionRequest) -> Completion:
    *_, last = serving.stream(request)
    assert last.completion is not None
    return last.completion
