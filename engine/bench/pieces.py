"""`python -m engine.bench.pieces`: single parts of a completion with the embedded target, on this machine.

The products of a forward in each type, transformers' own forward, rows that another document left against computing
them again, and a look into a long text and into a large workspace.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine import embedded, threads
from engine.checkpoints import embedded_model
from engine.drafters import Context
from engine.drafters.lookup import LookupDrafter
from engine.drafters.surroundings import Markers
from engine.embedded import Int8Weight
from engine.fast_llama import FastLlamaRunner, product
from engine.prefix_store import PrefixStore
from engine.request import GREEDY
from engine.runners import Runner
from engine.sampling import Noise
from engine.transformers_runner import TransformersRunner
from engine.workspace_index import WorkspaceIndex

SECONDS = 2.0  # a measurement
_PROMPT = 640  # tokens
_TEXT = 8192  # tokens to look into
_FILE = 2000  # tokens of a file in the workspace


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.bench.pieces", description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000_000, metavar="N", help="of the workspace")
    options = parser.parse_args()
    torch.set_num_threads(threads.MOST)
    for name, ms in (*products(), *forwards(), *rows(), *looks(options.tokens)):
        print(f"{name:52} {ms:8.3f} ms", flush=True)


@torch.inference_mode()
def products() -> Iterator[tuple[str, float]]:
    """All matrix products of one forward, one after another."""
    stored = [weight for weight in embedded.stored_weights("target").values() if isinstance(weight, Int8Weight)]
    floats = [weight.dequantised() for weight in stored]
    halves = [weight.bfloat16() for weight in floats]
    kinds: dict[str, tuple[torch.dtype, list[Int8Weight] | list[Tensor]]] = {
        "int8": (torch.float32, stored),
        "bfloat16": (torch.bfloat16, halves),
        "float32": (torch.float32, floats),
    }
    for width in (1, 4, 5):
        for kind, (dtype, weights) in kinds.items():
            inputs = [torch.randn(width, rows.shape[1], dtype=dtype) for rows, _ in stored]
            yield f"{len(stored)} products, {kind}, width {width}", median_ms(partial(_multiply, inputs, weights))


def _multiply(inputs: Sequence[Tensor], weights: Sequence[Tensor | Int8Weight]) -> None:
    for x, weight in zip(inputs, weights, strict=True):
        product(x, weight)


def forwards() -> Iterator[tuple[str, float]]:
    """A token behind a prompt."""
    shape = embedded.shape("target")
    runners: dict[str, Runner] = {
        "int8, ours": FastLlamaRunner(shape, embedded.stored_weights("target")),
        "float32, ours": FastLlamaRunner(shape, embedded.weights("target")),
        "bfloat16, transformers'": TransformersRunner(embedded_model("target", torch.bfloat16)),
        "float32, transformers'": TransformersRunner(embedded_model("target", torch.float32)),
    }
    for name, runner in runners.items():
        runner.forward([1] * _PROMPT, 0, 1)
        yield f"a token, {name}", median_ms(partial(runner.forward, [1], _PROMPT, 1))


def rows() -> Iterator[tuple[str, float]]:
    """Of the target as it runs by default."""
    runner = FastLlamaRunner(embedded.shape("target"), embedded.stored_weights("target"))
    yield f"{_PROMPT} tokens computed", median_ms(lambda: runner.forward([1] * _PROMPT, 0, 1))
    tokens, kept = [1] * _PROMPT, PrefixStore(1 << 30).shelf()
    yield "their rows copied out", median_ms(lambda: PrefixStore(1 << 30).shelf().put(tokens, runner.read_rows))
    kept.put(tokens, runner.read_rows)
    ((place, copy),) = kept.rows(tokens, 0, _PROMPT)
    yield "their rows copied in", median_ms(lambda: runner.write_rows(copy, place))


def looks(tokens: int) -> Iterator[tuple[str, float]]:
    """In the standard library, and in random text with the frequencies of words (Zipf, 1949)."""
    rng, vocab = np.random.default_rng(0), embedded.shape("target").vocab_size
    library, drafter = itertools.cycle(_library()), LookupDrafter(Markers(frozenset(), vocab))

    def begin() -> Context:
        prompt = next(library)
        for _ in drafter.prepare(prompt):
            pass
        return Context(prompt, len(prompt), GREEDY, Noise(0))

    yield f"lookup in {_TEXT} tokens", median_ms(lambda context: drafter.propose(context, 16), begin)
    text = np.minimum(rng.zipf(1.3, max(tokens, _TEXT)), vocab - 1).astype(np.int32)
    index = WorkspaceIndex()
    for start in range(0, tokens, 64 * _FILE):
        places = range(start, min(start + 64 * _FILE, tokens), _FILE)
        index.update({str(place): text[place : place + _FILE].tolist() for place in places})
    ends = iter(rng.integers(100, tokens, 1 << 20).tolist())

    def find() -> None:
        end = next(ends)
        index.find(text[end - 20 : end].tolist(), 8, 16)

    yield f"workspace of {index.tokens / 1e6:.1f} million tokens, {index.bytes / 1e6:.0f} MB", median_ms(find)


def _library() -> list[list[int]]:
    """Large modules, each cut off somewhere."""
    tokenizer, rng = embedded.tokenizer(), random.Random(0)
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"), key=lambda file: file.stat().st_size)[-40:]
    texts = [tokenizer.encode(file.read_text("utf-8"), add_special_tokens=False) for file in files]
    return [text[end - _TEXT : end] for text in texts if len(text) > _TEXT and (end := rng.randint(_TEXT, len(text)))]


def median_ms(work: Callable[..., object], begin: Callable[[], object] | None = None) -> float:
    """The median of two seconds; the first warms up. begin: makes what each is given, its time not counted."""
    work(*(() if begin is None else (begin(),)))
    times, end = list[float](), time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        given = () if begin is None else (begin(),)
        started = time.perf_counter()
        work(*given)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


if __name__ == "__main__":
    main()
