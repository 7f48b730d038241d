"""`python -m engine.bench.layouts`: what each order of suffix, prefix and current line costs the embedded target.

The order of its family is chosen by these numbers: how likely the author's own text is, and how many tokens one more
typed character makes new.
"""

from __future__ import annotations

import argparse
import statistics
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import get_args

from engine.config import EngineConfig
from engine.holes import Hole, cut
from engine.loading import LoadedPair, load
from engine.prefix_store import common_prefix
from engine.prompt import PromptBuilder
from engine.prompt.families import Order
from engine.request import CompletionRequest

_BUDGET = 768  # tokens of a prompt
_LONGEST = 48  # tokens of a middle


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.bench.layouts", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path(sysconfig.get_path("stdlib")), metavar="DIR")
    parser.add_argument("--holes", type=int, default=40, metavar="N")
    options = parser.parse_args()
    pair = load(EngineConfig(draft="none", device="cpu", dtype="float32"))
    holes = cut(options.corpus, options.holes, seed=1)
    for order in get_args(Order):
        nats, new = measure(pair, holes, order)
        print(f"{order:20} {nats:.2f} nats a token; {new:g} tokens new at a keystroke", flush=True)


def measure(pair: LoadedPair, holes: list[Hole], order: Order) -> tuple[float, float]:
    """(nats a token of what stood in the holes, median of the tokens that the last character before each made new)"""
    builder = PromptBuilder(pair.tokenizer)
    builder.format = replace(builder.format, order=order)
    nats, tokens, new = 0.0, 0, list[int]()
    for hole in holes:
        prompt = _prompt(builder, hole, hole.prefix)
        before = _prompt(builder, hole, hole.prefix[:-1])
        new.append(len(prompt) - common_prefix(before, prompt))
        middle = builder.plain(hole.middle, continued=True)[:_LONGEST]
        laws = pair.target.logits([*prompt, *middle[:-1]], tail=len(middle)).log_softmax(dim=-1)
        nats -= float(laws[range(len(middle)), middle].sum())
        tokens += len(middle)
    return nats / tokens, statistics.median(new)


def _prompt(builder: PromptBuilder, hole: Hole, prefix: str) -> tuple[int, ...]:
    return builder.build(CompletionRequest(prefix, hole.suffix, hole.path), _BUDGET).ids


if __name__ == "__main__":
    main()
