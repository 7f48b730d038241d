"""`python -m engine.bench`: plain against speculative decoding; the last line of stdout is one JSON document."""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from pathlib import Path

from engine import bench
from engine.config import ConfigError, EngineConfig
from engine.holes import cut
from engine.loading import load


def main(arguments: list[str] | None = None) -> int:
    """Runs the comparison; 2 with one line on stderr for what cannot work."""
    parser = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, default=Path(sysconfig.get_path("stdlib")), help="folder of source files"
    )
    parser.add_argument("--holes", type=int, default=20, metavar="N")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens a hole, end tokens banned")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which holes are cut")
    parser.add_argument("--target", metavar="PATH_OR_ID")
    parser.add_argument("--draft", metavar="PATH_OR_ID")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(arguments)
    try:
        config = EngineConfig(
            target=options.target, draft=options.draft, dtype=options.dtype, device=options.device, drafter="model"
        )
        pair = load(config)
        holes = cut(options.corpus, options.holes, options.seed)
    except (ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{'hole':44} {'plain ms':>9} {'spec ms':>9} {'ratio':>6} {'tok/fwd':>8} same")
    measured = bench.compare(pair, holes, options.tokens, config.sampling, _print)
    print(json.dumps(bench.document(pair, measured)))
    return 0


def _print(item: bench.Measured) -> None:
    plain, speculative = item.plain.total_ms, item.speculative.total_ms
    per_forward = item.speculative.tokens / item.speculative.target_forwards
    where = f"{item.hole.kind} {item.hole.path}"[-44:]
    print(f"{where:44} {plain:9.1f} {speculative:9.1f} {plain / speculative:6.2f} {per_forward:8.2f} {item.identical}")


if __name__ == "__main__":
    sys.exit(main())
