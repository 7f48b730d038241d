"""`python -m engine.bench`: the benchmark where only torch and transformers are installed."""

from __future__ import annotations

import argparse
import sys

from engine.bench.options import add_options, run
from engine.config import ConfigError, EngineConfig


def main() -> int:
    """0, or 2 with one line on stderr for what cannot work."""
    parser = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    add_options(parser)
    for name in ("pair", "target", "draft", "device", "dtype"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    options = parser.parse_args()
    given = {name: value for name, value in vars(options).items() if name in EngineConfig.__dataclass_fields__}
    try:
        run(options, EngineConfig(**given))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
