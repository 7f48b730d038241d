"""`python -m engine.bench.threads`: what a forward of the embedded target takes with one thread, two, … and beside
`--beside N` busy programs. GOMP_SPINCOUNT and OMP_WAIT_POLICY change how OpenMP's threads wait (engine/__init__.py).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import torch

from engine import embedded
from engine.bench.pieces import SECONDS, median_ms
from engine.fast_llama import FastLlamaRunner
from engine.threads import MOST

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
            seconds = 3 * len(counts) * SECONDS + 5  # they end by themselves, whatever becomes of this one
            busy = programs.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY.format(seconds=seconds)]))
            programs.callback(busy.kill)
        for count in counts:
            torch.set_num_threads(count)
            for width in (1, 4, 128):
                forward = partial(runner.forward, tokens[:width], 256, 1)
                print(f"{count} threads, width {width:3}: {median_ms(forward):7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
