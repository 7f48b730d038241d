"""Proves on this machine that speculative decoding gives the target's own text: exactly on tables, token by token in
greedy mode and where all guesses are certain, and by the frequencies of many first tokens where they are drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server.commands import UserError
from lsp_server.commands.options import add_engine_options, engine_config, overrides, whole
from lsp_server.commands.terminal import load_pair, working

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.proof import Equality, ExactTables, FirstTokens
    from engine.request import Sampling

SUMMARY = "prove that the output is the large model's own"

_DRAWS, _HOLES = 20_000, 20
_LONG_S = 20.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    draws: int
    holes: int


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--draws", type=whole, default=_DRAWS, metavar="N", help=f"first tokens a prompt ({_DRAWS}); they take the time"
    )
    parser.add_argument(
        "--holes", type=whole, default=_HOLES, metavar="N", help=f"holes for greedy equality ({_HOLES})"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the frequencies there, as .png or .svg")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = engine_config(arguments)
    given = overrides(arguments)
    if "dtype" not in given:
        config = config.replace(dtype="float32")  # where equality is bitwise; others round ties by a forward's width
    effort = _effort(arguments)
    if arguments.plot is not None:
        _require_drawable(arguments.plot)
    pair = load_pair(config)
    laws = [config.sampling] if "mode" in given and not config.sampling.greedy else None
    print(f"Pair {pair.name}, {pair.dtype}, {pair.device}\n")
    passed, frequencies = _prove(pair, config, effort, laws)
    if arguments.plot is not None:
        _draw(frequencies, arguments.plot)
    print("Every bound holds." if passed else "A bound does not hold: see `failed` above.")
    return 0 if passed else 1


def _effort(arguments: argparse.Namespace) -> Effort:
    for name in ("draws", "holes"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name}: {getattr(arguments, name)} is too few; use 1 or more")
    return Effort(arguments.draws, arguments.holes)


def _require_drawable(path: Path) -> None:
    """Before the work, not after it."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"--plot: {path} is no picture; give a name that ends in .png or .svg")
    if not path.parent.is_dir() or path.is_dir():
        raise UserError(f"--plot: {path} cannot be written; give a file in a folder that exists")
    if find_spec("matplotlib") is None:
        raise UserError("--plot: matplotlib is not installed; pip install 'specter-ls[plot]'")


def _draw(results: list[FirstTokens], path: Path) -> None:
    from engine.proof import plot

    try:
        plot(results, path)
    except OSError as error:
        raise UserError(f"--plot: {path} cannot be written ({error.strerror}); choose another file") from None
    print(f"Drawn: {path}\n")


def _prove(
    pair: LoadedPair, config: EngineConfig, effort: Effort, laws: list[Sampling] | None
) -> tuple[bool, list[FirstTokens]]:
    """Prints each part as it is ready; whether all passed, and the frequencies for the picture."""
    from engine.proof import LAWS, PROMPTS, exact_tables, first_tokens

    seed = config.seed or 0
    with working("exact tables") as say:
        tables = exact_tables(seed=seed, report=_percent(say, "exact tables"))
    _print_tables(tables)
    equal = _prove_equality(pair, effort.holes, seed, (laws or LAWS)[0])
    drawing = _drawing(pair)
    frequencies: list[FirstTokens] = []
    if drawing:
        print(f"First tokens: {effort.draws:,} completions a prompt and law, against the target's own law")
    clock = _Clock(parts=len(PROMPTS) * len(laws or LAWS) * max(len(drawing), 1))
    for one, law in ((one, law) for one in drawing for law in laws or LAWS):
        with working("first tokens") as say:
            report = clock.shown(say)
            results = list(first_tokens(one, draws=effort.draws, seed=seed, sampling=law, report=report))
        for result in results:
            _print_first_tokens(result)
        frequencies += results
    print()
    return tables.passed and equal and all(result.passed for result in frequencies), frequencies


def _prove_equality(pair: LoadedPair, count: int, seed: int, law: Sampling) -> bool:
    """Greedy with all sources of guesses; drawn by `law`, with the same seed, with those whose guesses are certain."""
    from engine.proof import LIBRARY, cut_holes, equality, with_certain_guesses
    from engine.workspace_files import fill_workspace

    with working("greedy equality") as say:
        holes = cut_holes(count=count, seed=seed)
        fill_workspace(pair, LIBRARY, [LIBRARY / hole.path for hole in holes])
        greedy = equality(pair, holes, report=_percent(say, "greedy equality"))
    _print_equality(f"Greedy equality with {pair.drafter_name}", greedy)
    certain = with_certain_guesses(pair)
    if certain is None:
        return greedy.passed
    with working("equality of draws") as say:
        drawn = equality(certain, holes, report=_percent(say, "equality of draws"), sampling=law)
    name = "what of merged does not draw" if pair.drafter_name == "merged" else pair.drafter_name
    _print_equality(f"Equality of draws with {name}", drawn)
    return greedy.passed and drawn.passed


def _drawing(pair: LoadedPair) -> list[LoadedPair]:
    """The pair with each drafter that draws guesses and is part of its own."""
    from engine.proof import SAMPLED

    if pair.draft is None or pair.drafter_name not in SAMPLED:
        return []
    names = SAMPLED if pair.drafter_name == "merged" else (pair.drafter_name,)
    return [replace(pair, drafter_name=name) for name in names]


def _percent(say: Callable[[str], None], what: str) -> Callable[[float], None]:
    return lambda fraction: say(f"{what} {fraction:.0%}")


class _Clock:
    """How long all the draws take, from those that were made: on a terminal what is left, and once, for all, the whole
    if it is long."""

    def __init__(self, parts: int, now: Callable[[], float] = time.monotonic) -> None:
        self._parts, self._now = parts, now
        self._began_s, self._done, self._said = now(), 0, False

    def shown(self, say: Callable[[str], None]) -> Callable[[float], None]:
        """Hears the fraction of a part that is done, 1 at its end."""

        def report(fraction: float) -> None:
            share = (self._done + fraction) / self._parts
            self._done += fraction >= 1
            whole_s = (self._now() - self._began_s) / share
            say(f"first tokens {share:.0%}, about {_time(whole_s * (1 - share))} left")
            if whole_s > _LONG_S and not self._said:
                self._said = True
                print(f"  about {_time(whole_s)} in all; fewer --draws take less", flush=True)

        return report


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _verdict(passed: bool) -> str:
    return "passed" if passed else "failed"


def _print_tables(tables: ExactTables) -> None:
    print(f"Exact tables: the law of what is emitted, against the target's: {_verdict(tables.passed)}")
    for check in tables.rules:
        print(f"  {check.rule:34} {check.tables} tables, largest error {check.largest_error:.1e}")
    example = tables.example
    print(f"  worked example: p = {_row(example.target)}, q = {_row(example.draft)}")
    for name in ("accepted", "corrected", "emitted", "uncorrected"):
        note = {"emitted": "the target's law", "uncorrected": "what a draw from p itself would give"}.get(name, "")
        print(f"    {name:12} {_row(getattr(example, name))}  {note}".rstrip())
    print()


def _row(numbers: tuple[float, ...]) -> str:
    return "[" + " ".join(f"{number:.2f}" for number in numbers) + "]"


def _print_equality(what: str, equal: Equality) -> None:
    print(f"{what}: speculative against plain decoding of real holes: {_verdict(equal.passed)}")
    print(f"  identical {equal.equal} of {equal.holes}, {equal.tokens} tokens; to the model's own end: ", end="")
    print(f"{equal.equal_to_end} of {equal.holes}")
    if equal.ties:
        print(f"  in {equal.ties} more they part by less than rounding")
    print(f"  {equal.drafted} guesses, {equal.accepted} accepted, {equal.forwards} passes of the target")
    for difference in equal.differences:
        where = f"hole {difference.hole}, token {difference.position}"
        print(f"  {where}: they part where the choice was nearer than {difference.margin:.2g} to another")
    print()


def _print_first_tokens(result: FirstTokens) -> None:
    fit = result.fit
    law = f"T {result.sampling.temperature:g}" + (
        f", top-p {result.sampling.top_p:g}" if result.sampling.top_p < 1 else ""
    )
    print(f"  {result.drafter} after `{result.prompt.strip() or 'an indent'}` at {law}: {_verdict(result.passed)}")
    print(
        f"    largest deviation {fit.largest_deviation:.1f} standard errors; "
        f"chi-square {fit.chi_square:.0f} on {fit.degrees}, p = {fit.p_value:.2f}"
    )
    print(
        f"    distance {fit.total_variation:.4f}, by chance alone {fit.expected_total_variation:.4f}, "
        f"uncorrected draft {result.draft_total_variation:.4f}"
    )
    print(
        f"    accepted {result.acceptance:.4f}, expected {result.expected_acceptance:.4f}; "
        f"alike one by one {result.alike:,} of {result.repeated:,}"
    )
