"""What the engine reaches on a GPU: equal to an uncached forward, and the times of true sizes against their bounds."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from engine import judging, on_device
from engine.bench import shapes
from engine.decoder import SpeculativeDecoder
from engine.drafters.small_model import CHAINS, SmallModelDrafter
from engine.model import CachedModel
from engine.prefix_store import PrefixStore
from engine.request import GREEDY, Sampling
from engine.sampling import Noise
from engine.speculation import Draft
from engine.static_runner import StaticRunner
from engine.transformers_runner import TransformersRunner

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Sizes(NamedTuple):
    """Of one run."""

    pairs: tuple[tuple[str, str], ...]
    context: int
    tokens: int
    lengths: tuple[int, ...]


FULL = Sizes(
    (("qwen2.5-coder-7b", "qwen2.5-coder-0.5b"), ("qwen2.5-coder-32b", "qwen2.5-coder-0.5b")), 2048, 64, (2, 3, 4, 6, 8)
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
        found["waits_in_a_cycle"] = most_waits(names, device, dtype)
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
    yield from check_text(model)


def check_text(model: Any) -> Iterator[str]:
    """Greedy text and what is cached of it, against the same weights run by transformers' code."""
    prompt = [(place * 5) % 512 for place in range(150)]
    general = CachedModel(TransformersRunner(model), 512)
    expected = decoded(general, None, 0, GREEDY, prompt)
    for length in (0, *CHAINS):
        runner = StaticRunner(model)
        drafter = SmallModelDrafter(CachedModel(StaticRunner(model), 512), frozenset()) if length else None
        for turn in ("eagerly", "recorded"):
            cached = CachedModel(runner, 512)
            if decoded(cached, drafter, length, GREEDY, prompt) != expected:
                yield f"greedy text of {length} guesses, {turn}"
            rows = runner.read_rows(0, len(cached.cached))[0].clone()
            runner.forward(cached.cached, 0, 1)
            if not bool((runner.read_rows(0, len(cached.cached))[0] - rows).abs().max() <= 1e-3):
                yield f"keys and values after {length} guesses, {turn}"


def decoded(
    target: CachedModel, drafter: SmallModelDrafter | None, length: int, how: Sampling, prompt: list[int]
) -> list[int]:
    decoder = SpeculativeDecoder(target, drafter, how, Noise(0), frozenset(), length)
    return [token for step in decoder.decode(prompt, 60) for token in step.tokens]


def most_waits(names: tuple[str, str], device: torch.device, dtype: torch.dtype) -> int:
    """How often the host waits for the device in one cycle at the most, greedy and sampled, once all is recorded."""
    vocab = min(shapes.SHAPES[name].vocab for name in names)
    target, draft = (
        CachedModel(StaticRunner(shapes._random_model(shapes.SHAPES[name], 512, device, dtype)), vocab)
        for name in names
    )
    found = [0]
    for how in (GREEDY, Sampling("sampled", top_p=0.95)):
        for _ in range(2):
            drafter = SmallModelDrafter(draft, frozenset())
            steps = SpeculativeDecoder(target, drafter, how, Noise(0), frozenset(), 4).decode([1, 2, 3] * 40, 40)
            counts = []
            while True:
                with waits(device) as count:
                    step = next(steps, None)
                if step is None:
                    break
                counts.append(count() if step.forwards else 0)
        found += counts
    return max(found)


@contextmanager
def waits(device: torch.device) -> Iterator[Callable[[], int]]:
    """Gives what counts them: torch itself on a GPU; elsewhere the copies that would be waited for."""
    if device.type == "cuda":
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield lambda: sum("synchronizing" in str(each.message) for each in heard)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return
    copies, to_host = list[int](), on_device.to_host
    judging.to_host = on_device.to_host = lambda values: copies.append(len(values)) or to_host(values)
    try:
        yield lambda: len(copies)
    finally:
        judging.to_host = on_device.to_host = to_host


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
    yield Bound("waits for the device in a cycle", found["waits_in_a_cycle"], "<=", 1)
    yield Bound("cycle beyond the forwards, share", best["cycle_overhead"], "<=", 0.03)
    yield Bound("7B with 0.5B, acceptance 0.8, over own plain", found["over_plain"], ">=", 2.0)
    yield Bound("the prompt, ms", found["prefill_ms"], "<=", 80)
    yield Bound("first text after 20 new tokens, ms", found["keystroke_ms"], "<=", 25)


if __name__ == "__main__":
    started = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    sys.exit(code)
