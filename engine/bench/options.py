"""What a benchmark can be told, and the run itself. Imports torch only when it runs."""

from __future__ import annotations

import argparse
import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import ConfigError, EngineConfig

if TYPE_CHECKING:
    from engine.bench.comparison import Measured


def add_options(parser: argparse.ArgumentParser) -> None:
    """The benchmark's own options; the engine's come from whoever calls."""
    library = Path(sysconfig.get_path("stdlib"))
    parser.add_argument("--corpus", type=Path, default=library, metavar="DIR", help="source files to cut holes from")
    parser.add_argument("--holes", type=int, default=20, metavar="N", help="how many, lines and blocks in turn")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens a hole, end tokens banned")
    parser.add_argument(
        "--drafters",
        metavar="NAME[:N],…",
        help="compare drafters with N guesses a cycle instead, on completions of up to --tokens that end by themselves",
    )
    parser.add_argument("--cut-seed", type=int, default=1, metavar="N", help="which holes are cut")


def run(options: argparse.Namespace, config: EngineConfig) -> None:
    """Prints a line a hole and the JSON document. Raises ConfigError for what cannot work."""
    for name in ("holes", "tokens"):
        if getattr(options, name) < 1:
            raise ConfigError(name, f"{getattr(options, name)} is too few; use 1 or more")
    if options.drafters is not None:
        _compare_drafters(options, config)
        return
    from engine.bench import comparison
    from engine.holes import cut
    from engine.loading import load

    try:
        holes = cut(options.corpus, options.holes, options.cut_seed)
    except ValueError as error:
        raise ConfigError("corpus", str(error)) from None
    pair = load(config)
    if pair.drafter() is None:
        raise ConfigError("drafter", "there is nothing to compare without one; leave out --draft none")
    print(f"{'hole':44} {'plain ms':>9} {'spec ms':>9} {'ratio':>6} {'tok/fwd':>8} same")
    measured = comparison.compare(pair, holes, options.tokens, config.sampling, _print)
    print(json.dumps(comparison.document(pair, measured)))


def _compare_drafters(options: argparse.Namespace, config: EngineConfig) -> None:
    """A line a hole, a table, and the JSON document."""
    from engine.bench import drafters
    from engine.holes import SOURCE, cut
    from engine.loading import load
    from engine.workspace_files import fill_workspace

    arms = drafters.arms(options.drafters)
    try:
        holes = cut(options.corpus, options.holes, options.cut_seed, SOURCE)
    except ValueError as error:
        raise ConfigError("corpus", str(error)) from None
    pair = load(config)
    fill_workspace(pair, options.corpus)

    def tell(result: drafters.Result) -> None:
        where = f"{result.hole.kind} {result.hole.path}"[-44:]
        forwards = " ".join(f"{run.target_forwards:>10}" for run in result.runs.values())
        print(f"{where:44} {result.plain.target_forwards:>6} {forwards}", flush=True)

    print(f"{'forwards':44} {'plain':>6} " + " ".join(f"{arm!s:>10}" for arm in arms))
    results = drafters.measure(pair, holes, arms, options.tokens, tell)
    document = drafters.document(pair, results)
    for kind, by_arm in document["classes"].items():
        print(f"\n{kind:12} {'tok/fwd':>8} {'control':>8} {'drafted':>8} {'accepted':>8} {'draft ms':>9} {'same':>8}")
        for arm, row in by_arm.items():
            values = (row["tokens_per_forward"], row["control_tokens_per_forward"], row["drafted"], row["accepted"])
            numbers = " ".join(f"{value:8.2f}" for value in values)
            print(f"{arm:12} {numbers} {row['draft_ms']:9.2f} {row['identical']:4}/{row['holes']}")
    print(json.dumps(document))


def _print(item: Measured) -> None:
    plain, speculative = item.plain.total_ms, item.speculative.total_ms
    per_forward = item.speculative.tokens / item.speculative.target_forwards
    where = f"{item.hole.kind} {item.hole.path}"[-44:]
    row = f"{where:44} {plain:9.1f} {speculative:9.1f} {plain / speculative:6.2f} {per_forward:8.2f} {item.identical}"
    print(row, flush=True)
