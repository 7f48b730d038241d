"""What the engine reaches on a GPU: equal to an uncached forward, and the times of true sizes against their bounds."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from engine.bench import shapes
from engine.model import CachedModel
from engine.prefix_store import PrefixStore
from engine.speculation import Draft
from engine.static_runner import StaticRunner

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Sizes(NamedTuple):
    """Of one run."""

    pairs: tuple[tuple[str, str], ...]
    context: int
    tokens: int
    lengths: tuple[int, ...]


FULL = Sizes(
    (("qwen2.5-coder-7b", "qwen2.5-coder-0.5b"), ("qwen2.5-coder-32b", "qwen2.5-coder-0.5b")), 2048, 64, (3, 5, 7, 10)
)
REHEARSAL = Sizes((("tiny", "tiny-draft"),), 64, 40, (2, 4))


class Bound(NamedTuple):
    """reached must be at least (or at most) the limit."""

    what: str
    reached: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        return self.reached >= self.limit if self.relation == ">=" else self.reached <= self.limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__)
    parser.add_argument("--cpu-rehearsal", action="store_true", help="tiny sizes on the CPU; bounds are shown only")
    rehearsal = parser.parse_args().cpu_rehearsal
    if not rehearsal and not torch.cuda.is_available():
        print("no GPU is available to this torch; try --cpu-rehearsal", file=sys.stderr)
        return 2
    device, dtype, sizes = (CPU, torch.float32, REHEARSAL) if rehearsal else (CUDA, torch.bfloat16, FULL)
    wrong = list(check_correct(device))
    for line in wrong:
        print(f"WRONG {line}", flush=True)
    measured, bounds = [], list[Bound]()
    for names in sizes.pairs:
        found = shapes.measure(names, 0.8, device, dtype, sizes.context, sizes.tokens, sizes.lengths, print)
        release()
        found |= peers_and_prompts(names[0], device, dtype, sizes, found)
        release()
        measured.append(found)
        bounds += list(bounds_of(found))
    for bound in bounds:
        print(
            f"{'ok' if bound.holds else 'FAILED':7} {bound.what:60} {bound.reached:8.3f} {bound.relation} {bound.limit}"
        )
    failed = [bound.what for bound in bounds if not bound.holds]
    document = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "rehearsal": rehearsal,
        "torch": torch.__version__,
        "wrong": wrong,
        "failed": failed,
        "bounds": [bound._asdict() for bound in bounds],
        "measured": measured,
    }
    print(json.dumps(document))
    return 1 if wrong or (failed and not rehearsal) else 0


def check_correct(device: torch.device) -> Iterator[str]:
    """Float32 logits after drafts, trees and other documents against a forward without a cache; what differs."""
    model = shapes._random_model(shapes.SHAPES["tiny"], 512, device, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = False

    def differs(ours: torch.Tensor, tokens: list[int]) -> bool:
        with torch.inference_mode():
            fresh = model(input_ids=torch.tensor([tokens], device=device), use_cache=False).logits[0, -1]
        return not bool((ours[-1] - fresh).abs().max() <= 1e-3)  # nor where they are no numbers

    cached = CachedModel(StaticRunner(model), 512, PrefixStore(1 << 26).shelf())
    texts = [[(seed + place * (seed + 3)) % 512 for place in range(200)] for seed in (1, 2)]
    for turn in range(4):
        text = texts[turn % 2]
        logits = cached.logits(text, guesses=Draft((5, 6, 7), (-1, 0, -1)))
        if differs(logits[:1], text) or differs(logits[2:3], [*text, 5, 6]) or differs(logits[3:], [*text, 7]):
            yield f"logits of a tree, turn {turn}"
        text += [7, turn]  # the other branch: its row moves
    if differs(cached.logits(texts[1]), texts[1]):
        yield "logits after a branch was taken"


def peers_and_prompts(
    name: str, device: torch.device, dtype: torch.dtype, sizes: Sizes, found: dict[str, Any]
) -> dict[str, Any]:
    """The prompt's time, the first text after a keystroke, and transformers' generate over the same sizes."""
    model = shapes._random_model(shapes.SHAPES[name], sizes.context + 4 * sizes.tokens, device, dtype)
    runner = StaticRunner(model)
    prompt = [(7 * place) % 500 for place in range(sizes.context)]
    prefill = median_ms(lambda: runner.forward(prompt, 0, 1), device, 3)
    keystroke = median_ms(lambda: runner.forward([1] * 20, sizes.context, 1), device, 5)
    ids = torch.tensor([prompt], device=device)
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.ones_like(ids)

    def generated(tokens: int) -> Callable[[], object]:
        return lambda: model.generate(ids, attention_mask=mask, max_new_tokens=tokens, **options)

    with torch.inference_mode():
        one, many = (median_ms(generated(tokens), device, 3) for tokens in (1, 17))
    theirs = (many - one) / 16
    return {
        "prefill_ms": prefill,
        "keystroke_ms": keystroke,
        "transformers_plain_ms": theirs,
        "over_transformers_plain": theirs / found["by_length"][0]["ms_per_token"],
    }


def median_ms(work: Callable[[], object], device: torch.device, times: int) -> float:
    seconds = sorted(shapes._seconds(work, device) for _ in range(times))
    return round(1000 * seconds[times // 2], 3)


def release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def bounds_of(found: dict[str, Any]) -> Iterator[Bound]:
    """Those of the 7B model and its draft; of the 32B, what guessing gains."""
    name, widths, best = found["target"], found["t_width_ms"], found["by_length"][found["best_length"]]
    if "32b" in name:
        yield Bound("32B with 0.5B, acceptance 0.8, over own plain", found["over_plain"], ">=", 2.8)
        return
    yield Bound("plain decode, share of the copy bandwidth", found["share_of_copy_bandwidth"], ">=", 0.75)
    yield Bound("plain decode over transformers' generate", found["over_transformers_plain"], ">=", 9)
    yield Bound("t(8) / t(1)", widths[8] / widths[1], "<=", 1.15)
    yield Bound("t(32) / t(1)", widths[32] / widths[1], "<=", 1.5)
    yield Bound("a draft step, ms", found["t_draft_ms"], "<=", 0.6)
    yield Bound("cycle beyond the forwards, share", best["cycle_overhead"], "<=", 0.03)
    yield Bound("7B with 0.5B, acceptance 0.8, over own plain", found["over_plain"], ">=", 2.0)
    yield Bound("the prompt, ms", found["prefill_ms"], "<=", 80)
    yield Bound("first text after 20 new tokens, ms", found["keystroke_ms"], "<=", 25)


if __name__ == "__main__":
    started = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    sys.exit(code)
