"""Shows the main job: completions stream in colour, then plain and speculative decoding of the same holes in turn."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsp_server.commands import UserError
from lsp_server.commands.demo_holes import DemoHole, demo_holes
from lsp_server.commands.options import add_engine_options, engine_config
from lsp_server.commands.terminal import console, load_pair, working

if TYPE_CHECKING:  # torch takes seconds to import
    from rich.console import Console

    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.record import Completion
    from engine.request import CompletionRequest

SUMMARY = "watch it complete, and compare plain with speculative decoding"

_GIVEN, _GUESSED, _OWN = "dim", "bold green", "bold yellow"
_ROUNDS, _LEAST_ROUNDS, _BUDGET_S = 5, 3, 2.0  # a hole; a slow or busy machine measures fewer rounds


@dataclass(frozen=True, slots=True)
class Measured:
    """One hole, decoded both ways in turn; the completions of each round."""

    path: str
    plain: list[Completion]
    speculative: list[Completion]

    @property
    def identical(self) -> bool:
        """Whether every run of both gave the same tokens."""
        return len({run.token_ids for run in (*self.plain, *self.speculative)}) == 1

    @property
    def accepted_per_pass(self) -> float:
        run = self.speculative[0]
        return run.accepted / max(run.target_forwards, 1)


def configure(parser: argparse.ArgumentParser) -> None:
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = engine_config(arguments)
    pair = load_pair(config)
    if pair.drafter() is None:
        raise UserError("the demo compares plain with speculative decoding; leave out --draft none and --drafter none")
    out = console()
    requests = [_request(hole, config) for hole in demo_holes()]
    out.print(f"Specter on {pair.device}, pair {pair.name}, {pair.dtype}", style="bold")
    _legend(out)
    for request in requests:
        _show(out, pair, request)
    measured = _compare(pair, requests)
    _table(out, measured)
    _verdict(out, measured, config)
    return 0


def _request(hole: DemoHole, config: EngineConfig) -> CompletionRequest:
    from engine.request import CompletionRequest

    return CompletionRequest(
        hole.prefix, hole.suffix, hole.path, sampling=config.sampling, max_tokens=config.max_tokens
    )


def _coloured(out: Console) -> bool:
    return out.color_system is not None and not out.no_color


def _legend(out: Console) -> None:
    if _coloured(out):
        out.print("guessed, and accepted by the large model", style=_GUESSED, end=" · ")
        out.print("the large model's own", style=_OWN, end=" · ")
        out.print("the file", style=_GIVEN)
    else:
        out.print("«…» is the completion; in colour, a terminal shows who wrote each token.")


def _show(out: Console, pair: LoadedPair, request: CompletionRequest) -> None:
    """Streams one completion in its place."""
    bounds = ("", "") if _coloured(out) else ("«", "»")
    out.rule(request.path, align="left", style=_GIVEN)
    out.print(request.prefix + bounds[0], style=_GIVEN, end="", soft_wrap=True)
    tokens = guessed = 0
    for piece, by_draft in _pieces(pair, request):
        tokens += 1
        guessed += by_draft
        out.print(piece, style=_GUESSED if by_draft else _OWN, end="", soft_wrap=True)
    out.print(bounds[1] + request.suffix.rstrip("\n"), style=_GIVEN, soft_wrap=True)
    out.print(f"{tokens} tokens, {guessed} of them guessed", style="italic")


def _pieces(pair: LoadedPair, request: CompletionRequest) -> Iterator[tuple[str, bool]]:
    """The text of each token as it comes, and whether it is an accepted guess.

    Listens to the decoder's steps: the engine's stream gives out text and does not say who wrote it.
    """
    from engine.decoder import SpeculativeDecoder
    from engine.generation import encode
    from engine.sampling import Noise
    from engine.text import TextStream

    prompt = encode(pair, request)
    noise = Noise(request.sampling.fresh_seed())
    decoder = SpeculativeDecoder(
        pair.target, pair.drafter(), request.sampling, noise, pair.end_tokens, pair.most_guesses, pair.policy
    )
    text = TextStream(lambda ids: pair.tokenizer.decode(ids, skip_special_tokens=False), context=prompt.ids[-1:])
    for step in decoder.decode(prompt.ids, request.max_tokens):
        for index, token in enumerate(step.tokens):
            if token not in pair.end_tokens:
                yield text.push(token), index < step.accepted


def _compare(pair: LoadedPair, requests: list[CompletionRequest]) -> list[Measured]:
    """Plain and speculative in turn, A B A B, so that a busy moment of the machine meets both.

    The prompt is in both models' caches, as it is after a keystroke; the first run of a hole brings it there and does
    not count.
    """
    measured = [Measured(request.path, [], []) for request in requests]
    with working("measuring") as say:
        for request, results in zip(requests, measured, strict=True):
            say(f"measuring {request.path}")
            _complete(pair, request, speculate=True)
            started = time.perf_counter()
            while (done := len(results.plain)) < _ROUNDS:
                if done >= _LEAST_ROUNDS and time.perf_counter() - started > _BUDGET_S:
                    break
                results.plain.append(_complete(pair, request, speculate=False))
                results.speculative.append(_complete(pair, request, speculate=True))
    return measured


def _complete(pair: LoadedPair, request: CompletionRequest, *, speculate: bool) -> Completion:
    from engine.generation import generate

    *_, last = generate(pair, request, pair.drafter() if speculate else None)
    assert last.completion is not None
    return last.completion


def _table(out: Console, measured: list[Measured]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=None)
    table.add_column("hole")
    for heading in ("tokens", "plain\ntokens/s", "speculative\ntokens/s", "ratio", "accepted\nper pass", "identical"):
        table.add_column(heading, justify="right")
    for results in measured:
        plain, speculative = _speed(results.plain), _speed(results.speculative)
        table.add_row(
            results.path,
            str(results.speculative[0].tokens),
            f"{plain:.3g}",
            f"{speculative:.3g}",
            f"{speculative / plain:.2f}",
            f"{results.accepted_per_pass:.2f}",
            "yes" if results.identical else "no",
        )
    out.print(table)


def _speed(runs: list[Completion]) -> float:
    """Tokens per second, the median of the runs."""
    return statistics.median(run.tokens_per_second for run in runs)


def _verdict(out: Console, measured: list[Measured], config: EngineConfig) -> None:
    """Over all holes together: tokens and passes add up, times are each hole's median."""
    plain = _together([results.plain for results in measured])
    speculative = _together([results.speculative for results in measured])
    first = [results.speculative[0] for results in measured]
    accepted = sum(run.accepted for run in first) / sum(run.target_forwards for run in first)
    out.print(
        f"Together: plain {plain:.3g}, speculative {speculative:.3g} tokens/s, ratio {speculative / plain:.2f}; "
        f"{accepted:.2f} guesses accepted per pass of the large model.",
        style="bold",
    )
    same = sum(results.identical for results in measured)
    if config.sampling.greedy:
        out.print(f"Identical {same} of {len(measured)}.", style="bold")
    if config.sampling.greedy and same < len(measured):
        out.print("Where two tokens tie, rounding decides; --dtype float32 leaves no such ties.")
    if not config.sampling.greedy:
        out.print("Sampled text follows the same law both ways, but not token for token: `specter prove` shows that.")
    rounds = min(len(results.plain) for results in measured)
    out.print(
        f"Medians of {rounds} rounds, plain and speculative in turn; the prompt is in the cache, as after a keystroke.",
        style=_GIVEN,
    )


def _together(kinds: list[list[Completion]]) -> float:
    """Tokens per second over all holes."""
    seconds = sum(statistics.median(run.total_ms for run in runs) for runs in kinds) / 1000
    return sum(runs[0].tokens for runs in kinds) / seconds
