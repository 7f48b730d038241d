"""Checks this installation: device, models, tokenizers, memory, and a completion of 32 tokens decoded both ways."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.config import ConfigError
from lsp_server.commands import UserError
from lsp_server.commands.options import add_engine_options, engine_config
from lsp_server.commands.terminal import load_pair

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.proof import Equality
    from engine.record import Completion
    from engine.request import CompletionRequest

SUMMARY = "check this installation and say what to do"

Blame = Literal["ours", "the user's"]

_TOKENS = 32
# bfloat16 keeps 8 bits, so logits near 30 are steps of an eighth apart; a narrower margin is a tie.
_TIE = 0.25
_PROMPT = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        "


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. A problem says whose it is and, in `fix`, what to do."""

    name: str
    status: Literal["ok", "problem"]
    found: str
    fix: str = ""
    blame: Blame = "ours"

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "found": self.found, "fix": self.fix}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = engine_config(arguments)
    checks: list[Check] = []
    for check in _checks(config):
        checks.append(check)
        if not arguments.json:
            _print(check)
    problems = [check for check in checks if check.status == "problem"]
    if arguments.json:
        print(json.dumps({"ok": not problems, "checks": [check.to_json() for check in checks]}))
    if problems and all(check.blame == "the user's" for check in problems):
        raise UserError(f"{problems[0].found}; {problems[0].fix}")
    return 1 if problems else 0


def _print(check: Check) -> None:
    print(f"{check.status:8} {check.name:11} {check.found}", flush=True)
    if check.fix:
        print(f"{'':20} {check.fix}", flush=True)


def _checks(config: EngineConfig) -> Iterator[Check]:
    if config.server_url is None:
        yield from _local(config)
    else:
        yield from _server(config)


def _server(config: EngineConfig) -> Iterator[Check]:
    from engine.request import CompletionRequest
    from lsp_server.commands.doctor_server import examine

    try:
        for found in examine(config, CompletionRequest(_PROMPT, "\n", "stack.py", max_tokens=_TOKENS)):
            yield Check(found.name, "ok", found.text)
    except (UserError, ConfigError) as error:
        what, _, fix = str(error).partition("; ")
        yield Check("server", "problem", what, fix, "the user's")


def _local(config: EngineConfig) -> Iterator[Check]:
    before = _used_mb()
    try:
        pair = load_pair(config)
    except ConfigError as error:
        yield _versions()
        yield _device(config)
        option = f"--{error.key.replace('_', '-')}"
        found, _, fix = str(error).removeprefix(f"{error.key}: ").rpartition("; ")
        yield Check("pair", "problem", f"{option}: {found or fix}", fix if found else "", "the user's")
        return
    weights_mb = _used_mb() - before
    yield _versions()
    yield _device(config)
    if pair.notice:
        yield Check("fallback", "ok", pair.notice, "free the GPU's memory, or choose a smaller pair")
    yield _pair(pair)
    yield _tokenizer(pair)
    yield _fim(pair)
    yield Check("window", "ok", f"{pair.target.window} tokens, of which {pair.context} are used")
    yield from _self_test(pair, weights_mb)


def _versions() -> Check:
    import torch
    import transformers

    found = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    return Check("versions", "ok", found)


def _device(config: EngineConfig) -> Check:
    import torch

    from engine.threads import MOST

    if config.device != "cpu" and torch.cuda.is_available():
        return Check("device", "ok", torch.cuda.get_device_name())
    found = f"cpu, up to {MOST} threads on {os.cpu_count()} cores"
    if config.device == "auto" and shutil.which("nvidia-smi") is not None:
        fix = "install a CUDA build of torch (pytorch.org/get-started), or say --device cpu if that is meant"
        return Check("device", "problem", f"{found}; there is an NVIDIA GPU that torch cannot use", fix, "the user's")
    return Check("device", "ok", found)


def _pair(pair: LoadedPair) -> Check:
    drafter = pair.drafter()
    guesses = "plain decoding" if drafter is None else f"guesses from {drafter.name}, up to {pair.most_guesses} a cycle"
    return Check("pair", "ok", f"{pair.name}, {pair.dtype}, {guesses}")


def _tokenizer(pair: LoadedPair) -> Check:
    """Loading refuses models whose ids differ in meaning; what is left to see is whether text survives the ids."""
    agreement = "one model, no draft" if pair.draft is None else "target and draft agree on every token"
    ids = pair.tokenizer.encode(_PROMPT, add_special_tokens=False)
    if pair.tokenizer.decode(ids, skip_special_tokens=False) != _PROMPT:
        fix = "use the tokenizer files that came with the checkpoint"
        return Check("tokenizer", "problem", "text does not survive encoding and decoding", fix, "the user's")
    return Check("tokenizer", "ok", f"{len(pair.tokenizer.get_vocab())} tokens; {agreement}")


def _fim(pair: LoadedPair) -> Check:
    form = pair.prompts.format
    return Check("fim", "ok", f"{form.name}, {form.order.replace('-', ' ')}: {' '.join(form.sequence)}")


def _self_test(pair: LoadedPair, weights_mb: float) -> Iterator[Check]:
    from engine.endless import without_ends
    from engine.request import CompletionRequest

    request = CompletionRequest(_PROMPT, "\n", "stack.py", max_tokens=_TOKENS)
    endless = without_ends(pair)
    try:
        _complete(endless, request, speculate=True)  # the first run of all pays for what is built once
        plain = _complete(endless, request, speculate=False)
        speculative = _complete(endless, request, speculate=True)
    except Exception as error:  # whatever it is: the report is where it should be said
        yield Check("self-test", "problem", f"the completion failed ({type(error).__name__})", _REPORT)
        return
    found = f"weights {weights_mb:.0f} MB, peak of the process {speculative.peak_memory_mb:.0f} MB"
    yield Check("memory", "ok", found)
    yield _speed("plain", plain)
    if pair.drafter() is not None:
        yield _speed("speculative", speculative)
        yield _equality(pair, request)


_REPORT = "please report this with the output of `SPECTER_LOG=debug specter doctor`"


def _complete(pair: LoadedPair, request: CompletionRequest, *, speculate: bool) -> Completion:
    """From a cold cache, so that the time to the first token has the whole prompt in it."""
    from engine.generation import generate

    pair.forget()
    *_, last = generate(pair, request, pair.drafter() if speculate else None)
    assert last.completion is not None
    return last.completion


def _speed(name: str, run: Completion) -> Check:
    found = f"{run.tokens} tokens, first after {run.ttft_ms:.0f} ms, {run.tokens_per_second:.0f} tokens/s in all"
    if run.tokens < _TOKENS:
        return Check(name, "problem", f"{run.tokens} tokens of {_TOKENS}", _REPORT)
    accepted = f", {run.accepted} of {run.drafted} guesses accepted" if run.drafted else ""
    fault = run.notes[0] if run.notes else ""
    return Check(name, "problem", fault, _REPORT) if fault else Check(name, "ok", found + accepted)


def _equality(pair: LoadedPair, request: CompletionRequest) -> Check:
    from engine.proof import equality

    result: Equality = equality(pair, [request], max_tokens=_TOKENS)
    if result.passed:
        return Check("greedy", "ok", f"speculative equals plain decoding, {result.tokens} tokens")
    margin = max((difference.margin for difference in result.differences), default=float("inf"))
    if pair.dtype != "float32" and margin <= _TIE:
        return Check("greedy", "ok", f"differs at a tie ({margin:.3f} between logits), which {pair.dtype} rounds")
    return Check("greedy", "problem", f"speculative decoding left the plain path (margin {margin:.3f})", _REPORT)


def _used_mb() -> float:
    """Of the GPU where there is one, else of this process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() / 2**20
    import psutil  # type: ignore[import-untyped]

    return float(psutil.Process().memory_info().rss) / 2**20
