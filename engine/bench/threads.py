"""`python -m engine.bench.threads`: what a forward of the embedded target takes with one thread, two, … and beside
`--beside N` busy programs. GOMP_SPINCOUNT and OMP_WAIT_POLICY change how OpenMP's threads wait (engine/__init__.py).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import torch

from engine import embedded
from engine.fast_llama import FastLlamaRunner
from engine.threads import MOST

_SECONDS = 2.0  # a measurement
_BUSY = "import time\nend = time.time() + {seconds}\nwhile time.time() < end: pass"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.bench.threads", description=__doc__)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="busy programs to run at the same time")
    beside = parser.parse_args().beside
    runner = FastLlamaRunner(embedded.shape("target"), embedded.stored_weights("target"))
    tokens = torch.randint(embedded.shape("target").vocab_size, (256,)).tolist()
    runner.forward(tokens, 0, 1)
    counts = sorted({1, MOST})
    with ExitStack() as programs:
        for _ in range(beside):
            seconds = 3 * len(counts) * _SECONDS + 5  # they end by themselves, whatever becomes of this one
            busy = programs.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY.format(seconds=seconds)]))
            programs.callback(busy.kill)
        for count in counts:
            torch.set_num_threads(count)
            for width in (1, 4, 128):
                print(f"{count} threads, width {width:3}: {_median_ms(runner, tokens[:width]):7.1f} ms", flush=True)


def _median_ms(runner: FastLlamaRunner, tokens: list[int]) -> float:
    times, end = list[float](), time.perf_counter() + _SECONDS
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        runner.forward(tokens, 256, 1)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


if __name__ == "__main__":
    main()
