"""What a benchmark can be told, and the run itself. Imports torch only when it runs."""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from engine.config import ConfigError, EngineConfig

if TYPE_CHECKING:
    from engine.bench.comparison import Measured
    from engine.holes import Hole, Kind


def add_options(parser: argparse.ArgumentParser) -> None:
    """The benchmark's own options; the engine's come from whoever calls."""
    parser.add_argument(
        "--corpus",
        type=Path,
        nargs="+",
        action="extend",
        metavar="DIR",
        help="source files to cut holes from; for --drafters several, each a workspace of its own",
    )
    parser.add_argument("--holes", type=int, default=20, metavar="N", help="how many, lines and blocks in turn")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens a hole, end tokens banned")
    parser.add_argument(
        "--drafters",
        metavar="NAME[:N],…",
        help="compare drafters with N guesses a cycle instead, on completions of up to --tokens that end by themselves",
    )
    parser.add_argument("--peers", action="store_true", help="beside transformers' generate and llama.cpp's server")
    parser.add_argument("--classes", metavar="KIND,…", help="of holes: line, block, function, prose, other")
    parser.add_argument("--temperatures", metavar="T,…", help="0 is greedy; the others with top-p 0.95")
    parser.add_argument("--draft-lengths", metavar="N,…", help="fixed numbers of guesses a cycle beside auto's")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draws speed and accepted length by class and length")
    parser.add_argument("--shapes", metavar="TARGET,DRAFT", help="true sizes without weights, see --random-weights")
    parser.add_argument("--random-weights", action="store_true", help="what --shapes needs, so that nobody is misled")
    parser.add_argument("--acceptance", type=float, default=0.8, metavar="P", help="how often a guess comes true there")
    parser.add_argument("--context", type=int, default=2048, metavar="N", help="tokens before what is measured there")
    parser.add_argument("--cut-seed", type=int, default=1, metavar="N", help="which holes are cut")


def run(options: argparse.Namespace, config: EngineConfig) -> None:
    """Prints a line a hole and the JSON document. Raises ConfigError for what cannot work."""
    for name in ("holes", "tokens"):
        if getattr(options, name) < 1:
            raise ConfigError(name, f"{getattr(options, name)} is too few; use 1 or more")
    if options.shapes is not None:
        _shapes(options, config)
        return
    if config.server_url is not None:
        _serve(options, config)
        return
    if options.drafters is not None:
        _compare_drafters(options, config)
        return
    if options.peers or options.classes or options.temperatures or options.draft_lengths or options.plot:
        _sweep(options, config)
        return
    from engine.bench import comparison
    from engine.loading import load

    holes = _holes(options)
    pair = load(config)
    if pair.drafter() is None:
        raise ConfigError("drafter", "there is nothing to compare without one; leave out --draft none")
    print(f"{'hole':44} {'plain ms':>9} {'spec ms':>9} {'ratio':>6} {'tok/fwd':>8} same")
    measured = comparison.compare(pair, holes, options.tokens, config.sampling, _print)
    print(json.dumps(comparison.document(pair, measured)))


def _serve(options: argparse.Namespace, config: EngineConfig) -> None:
    """A line a hole and the JSON document."""
    from engine.bench import served
    from engine.interface import EngineError

    holes = _holes(options)

    def tell(pair: served.Pair) -> None:
        where = f"{pair.hole.kind} {pair.hole.path}"[-44:]
        specter, raw = pair.specter, pair.raw
        row = (
            f"{specter.ttft_ms:9.1f} {raw.ttft_ms:9.1f} {specter.total_ms:9.1f} {raw.total_ms:9.1f} {specter.tokens:6}"
        )
        print(f"{where:44} {row}", flush=True)

    print(f"{'hole':44} {'ttft ms':>9} {'raw ttft':>9} {'total ms':>9} {'raw total':>9} tokens")
    try:
        print(json.dumps(served.measure(config, holes, options.tokens, tell)))
    except EngineError as error:
        raise ConfigError("server_url", str(error)) from None


def _folders(options: argparse.Namespace) -> list[Path]:
    return options.corpus or [Path(sysconfig.get_path("stdlib"))]


def _folder(options: argparse.Namespace) -> Path:
    """Where only one will do. Raises ConfigError."""
    folder, *others = _folders(options)
    if others:
        raise ConfigError("corpus", "several folders are for --drafters; name one")
    return folder


def _holes(
    options: argparse.Namespace, suffixes: Sequence[str] = (".py",), kinds: Sequence[Kind] = ("line", "block")
) -> list[Hole]:
    """Raises ConfigError."""
    from engine.holes import cut

    try:
        return cut(_folder(options), options.holes, options.cut_seed, suffixes, kinds)
    except ValueError as error:
        raise ConfigError("corpus", str(error)) from None


def _compare_drafters(options: argparse.Namespace, config: EngineConfig) -> None:
    """A line a hole, a table, and the JSON document."""
    from engine.bench import drafters
    from engine.holes import cut_packages
    from engine.loading import load

    arms = drafters.arms(options.drafters)
    try:
        packages = cut_packages(_folders(options), options.holes, options.cut_seed)
    except ValueError as error:
        raise ConfigError("corpus", str(error)) from None
    pair = load(config.replace(drafter="merged"))  # with a draft model for the arms that need one

    def tell(result: drafters.Result) -> None:
        where = f"{result.hole.kind} {result.hole.path}"[-44:]
        forwards = " ".join(f"{run.target_forwards:>10}" for run in result.runs.values())
        print(f"{where:44} {result.plain.target_forwards:>6} {forwards}", flush=True)

    print(f"{'forwards':44} {'plain':>6} " + " ".join(f"{arm!s:>10}" for arm in arms))
    results, workspaces = drafters.measure_packages(pair, packages, arms, options.tokens, tell)
    document = drafters.document(pair, results, workspaces)
    for kind, by_arm in document["classes"].items():
        print(f"\n{kind:20}" + "".join(f"{title:>10}" for title in _COLUMNS) + f"{'same':>10}")
        for arm, row in by_arm.items():
            numbers = "".join(f"{row[key]:10.2f}" for key in _COLUMNS.values())
            print(f"{arm:20}{numbers}{row['identical']:5}/{row['holes']:<4}")
    print(json.dumps(document))


_COLUMNS = {
    "tok/fwd": "tokens_per_forward",
    "control": "control_tokens_per_forward",
    "drafted": "drafted",
    "accepted": "accepted",
    "rejected@": "rejected_at",
    "draft ms": "draft_ms",
    "verify ms": "verify_ms",
    "tokens/s": "tokens_per_second",
    "over plain": "over_plain",
    "MB": "memory_mb",
}


def _sweep(options: argparse.Namespace, config: EngineConfig) -> None:
    """A line a hole, a table, and the JSON document."""
    from engine.bench import sweep
    from engine.bench.peers import peers
    from engine.holes import SOURCE, Kind
    from engine.loading import load

    known = get_args(Kind)
    fits = known.__contains__
    kinds = _listed("classes", options.classes or "line,block", f"some of {', '.join(known)}", fits, str)
    within = "numbers from 0 to 100"
    temperatures = _listed("temperatures", options.temperatures or "0", within, lambda t: 0 <= t <= 100, float)
    lengths = _lengths(options)
    holes = _holes(options, SOURCE if "other" in kinds else (".py",), kinds)
    if options.plot is not None:
        _require_plot()
    pair = load(config)

    def tell(hole: Hole, rows: Sequence[sweep.Row]) -> None:
        times = " ".join(f"{row.way} {row.ms_per_token:.2f}" for row in rows if row.temperature == temperatures[0])
        print(f"{hole.kind:8} {hole.path[-32:]:32} ms a token: {times}", flush=True)

    with peers(pair, config, options.peers) as others:
        rows, control = sweep.measure(pair, holes, options.tokens, temperatures, lengths, others, tell)
    document = sweep.document(pair, rows, control)
    for kind, by_temperature in document["classes"].items():
        for temperature, ways in by_temperature.items():
            print(f"\n{kind} {temperature:10} {'ms/token':>10} {'quartiles':>18} {'tok/fwd':>8} {'accepted':>9}")
            for way, row in ways.items():
                ours = " ".join(f"{row[key]:8.2f}" for key in _OF_OURS if row[key] is not None)
                print(f"{way:22} {row['ms_per_token']:8.2f} {row['quartiles']!s:>20} {ours}")
    if options.plot is not None:
        sweep.plot(rows, options.plot)
    print(json.dumps(document))


_OF_OURS = ("tokens_per_forward", "accepted_length")


def _listed(key: str, text: str, fix: str, fits: Callable[[Any], bool], convert: Callable[[str], Any]) -> list[Any]:
    """Values separated by commas. Raises ConfigError for one that is none."""
    try:
        values = [convert(part.strip()) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(map(fits, values)):
        raise ConfigError(key, f"{text!r} is not possible; write {fix}, separated by commas")
    return values


def _shapes(options: argparse.Namespace, config: EngineConfig) -> None:
    import torch

    from engine.bench import shapes
    from engine.devices import device_for
    from engine.loading import best_dtype

    names = shapes.pair_of_shapes(options.shapes)
    if not options.random_weights:
        raise ConfigError("shapes", "there are no weights of that name here; add --random-weights")
    if not 0 <= options.acceptance <= 1:
        raise ConfigError("acceptance", f"{options.acceptance:g} is not possible; use a number from 0 to 1")
    if not 1 <= options.context <= 2**17:
        raise ConfigError("context", f"{options.context} is not possible; use a whole number from 1 to {2**17}")
    lengths = _lengths(options)
    device = device_for(config.device)
    dtype = getattr(torch, best_dtype(device) if config.dtype == "auto" else config.dtype)
    document = shapes.measure(
        names,
        acceptance=options.acceptance,
        device=device,
        dtype=dtype,
        context=options.context,
        tokens=max(options.tokens, 34),
        lengths=lengths,
        tell=lambda line: print(line, flush=True),
    )
    print(json.dumps(document))


def _lengths(options: argparse.Namespace) -> list[int]:
    within = "whole numbers from 1 to 32"
    return _listed("draft_lengths", options.draft_lengths or "1,2,4,8", within, lambda n: 1 <= n <= 32, int)


def _require_plot() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("plot", "pictures need matplotlib; `pip install 'specter-ls[plot]'`") from None


def _print(item: Measured) -> None:
    plain, speculative = item.plain.total_ms, item.speculative.total_ms
    per_forward = item.speculative.tokens / item.speculative.target_forwards
    where = f"{item.hole.kind} {item.hole.path}"[-44:]
    row = f"{where:44} {plain:9.1f} {speculative:9.1f} {plain / speculative:6.2f} {per_forward:8.2f} {item.identical}"
    print(row, flush=True)
