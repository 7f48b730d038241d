"""True sizes without weights: what forwards, drafts and cycles cost where guesses come true as often as one says.

The decoder is the real one, over models with random weights; only whether a guess comes true is forced, by a trace that
is the same for every draft length.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.config import ConfigError
from engine.decoder import SpeculativeDecoder
from engine.drafters.small_model import CHAINS, SmallModelDrafter
from engine.model import CachedModel
from engine.on_device import Behind, to_device
from engine.request import GREEDY
from engine.runners import Runner, WrappedRunner
from engine.sampling import Noise
from engine.static_runner import StaticRunner

WIDTHS = (1, 2, 4, 8, 16, 32)
_RUNS = 9  # of each width, in turn
_COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


class Shape(NamedTuple):
    """Of a model; sizes from the config.json of its card."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool


SHAPES = {
    "qwen2.5-coder-0.5b": Shape(896, 4864, 24, 14, 2, 151936, True),
    "qwen2.5-coder-1.5b": Shape(1536, 8960, 28, 12, 2, 151936, True),
    "qwen2.5-coder-3b": Shape(2048, 11008, 36, 16, 2, 151936, True),
    "qwen2.5-coder-7b": Shape(3584, 18944, 28, 28, 4, 152064, False),
    "qwen2.5-coder-14b": Shape(5120, 13824, 48, 40, 8, 152064, False),
    "qwen2.5-coder-32b": Shape(5120, 27648, 64, 40, 8, 152064, False),
    "tiny": Shape(64, 128, 4, 4, 2, 512, True),
    "tiny-draft": Shape(32, 64, 2, 4, 2, 512, True),
}


def pair_of_shapes(text: str) -> tuple[str, str]:
    """TARGET,DRAFT. Raises ConfigError."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or any(name not in SHAPES for name in names):
        raise ConfigError("shapes", f"{text!r} is not possible; write TARGET,DRAFT, each of {', '.join(SHAPES)}")
    return names[0], names[1]


def measure(
    names: tuple[str, str],
    acceptance: float,
    device: torch.device,
    dtype: torch.dtype,
    context: int,
    tokens: int,
    lengths: Sequence[int],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """One JSON object; times in milliseconds, medians. context: tokens in the cache before what is measured."""
    window = context + tokens + 2 * max(WIDTHS)
    models = [_random_model(SHAPES[name], window, device, dtype) for name in names]
    target, draft = (StaticRunner(model) for model in models)
    copied = _copy_gb_s(device)
    vocab = min(SHAPES[name].vocab for name in names)
    prompt = [(7 * place) % vocab for place in range(context)]
    for runner in (target, draft):
        runner.forward(prompt, 0, 1)
    widths = _times({w: partial(target.forward, [1] * w, context, w) for w in WIDTHS}, device)
    uniforms = {length: [0.5] * length for length in CHAINS}
    chains = _times(
        {length: partial(draft.chain, [1, 1], context, uniforms[length], GREEDY, vocab) for length in CHAINS}, device
    )
    drafted = round(chains[CHAINS[-1]] / CHAINS[-1], 4)
    read = _bytes_read(models[0], SHAPES[names[0]].tied)
    for width, ms in widths.items():
        tell(f"{names[0]} width {width:3}: {ms:8.3f} ms")
    for length, ms in chains.items():
        tell(f"{names[1]} chain   {length:3}: {ms:8.3f} ms")
    rows = {}
    for length in (0, *lengths):
        rows[length] = _decode(target, draft, vocab, prompt, tokens, length, acceptance, widths, chains)
        tell(f"{length:3} guesses: {rows[length]['ms_per_token']:8.3f} ms a token")
    best = min(lengths, key=lambda length: rows[length]["ms_per_token"])
    return {
        "target": names[0],
        "draft": names[1],
        "device": str(device),
        "dtype": str(dtype).removeprefix("torch."),
        "context": context,
        "acceptance": acceptance,
        "copy_gb_s": round(copied, 2),
        "t_width_ms": widths,
        "t_chain_ms": chains,
        "t_draft_ms": drafted,  # a token of the longest chain
        "share_of_copy_bandwidth": round(read / (widths[1] / 1000) / 1e9 / copied, 4),
        "by_length": rows,
        "best_length": best,
        "over_plain": round(rows[0]["ms_per_token"] / rows[best]["ms_per_token"], 3),
    }


def _random_model(shape: Shape, window: int, device: torch.device, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM  # seconds

    config = AutoConfig.for_model(
        "qwen2",
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=window,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def _bytes_read(model: Any, tied: bool) -> int:
    """By a forward over one token: all weights, but of an embedding that is not the head, too, one row only."""
    every: int = sum(parameter.nbytes for parameter in model.parameters())
    return every if tied else every - int(model.get_input_embeddings().weight.nbytes)


def _copy_gb_s(device: torch.device) -> float:
    """What a copy in memory reads and writes in a second."""
    source = torch.empty(_COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    goal = torch.empty_like(source)
    seconds = [_seconds(lambda: goal.copy_(source), device) for _ in range(_RUNS)]
    return 2 * source.nbytes / statistics.median(seconds) / 1e9


def _times(works: Mapping[int, Callable[[], object]], device: torch.device) -> dict[int, float]:
    """Milliseconds of each, in turn."""
    times: dict[int, list[float]] = {size: [] for size in works}
    for _ in range(_RUNS + 2):
        for size, work in works.items():
            times[size].append(1000 * _seconds(work, device))
    return {size: round(statistics.median(found[2:]), 4) for size, found in times.items()}  # two warm up and record


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _decode(
    target: Runner,
    draft: Runner,
    vocab: int,
    prompt: Sequence[int],
    tokens: int,
    length: int,
    acceptance: float,
    widths: Mapping[int, float],
    chains: Mapping[int, float],
) -> dict[str, float]:
    """A completion of `tokens` tokens; of its time, what the forwards do not take by themselves."""
    judged = CachedModel(_Forced(target, acceptance), vocab)
    drafter = SmallModelDrafter(CachedModel(draft, vocab), frozenset()) if length else None
    for _ in range(2):  # by the second, all that is recorded is
        decoder = SpeculativeDecoder(judged, drafter, GREEDY, Noise(0), frozenset(), length)
        steps = decoder.decode(prompt, tokens)
        first = next(step for step in steps if step.forwards)
        started = time.perf_counter()
        cycles = list(steps)
        total = time.perf_counter() - started
    behind = tokens - len(first.tokens)
    inside = sum(widths[_filled(step.drafted + 1)] + chains.get(step.drafted, 0.0) for step in cycles) / 1000
    return {
        "ms_per_token": round(1000 * total / behind, 4),
        "tokens_per_forward": round(behind / len(cycles), 3),
        "cycle_overhead": round((total - inside) / inside, 4),  # of the forwards' time
    }


def _filled(width: int) -> int:
    return next(each for each in WIDTHS if each >= width)


class _Forced(WrappedRunner):
    """Agrees with a guess as often as it is told, whatever its weights say."""

    def __init__(self, inner: Runner, acceptance: float) -> None:
        super().__init__(inner)
        self._acceptance = acceptance
        self._trace = random.Random(0)

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        logits = super().forward(tokens, start, tail, parents)
        count = tail - 1
        if count:
            away = tokens.guesses.there.long() if isinstance(tokens, Behind) else None
            guesses = to_device(list(tokens[-count:]), logits.device) if away is None else away
            wanted = torch.tensor([1e4 if self._trace.random() < self._acceptance else -1e4 for _ in range(count)])
            logits = logits.clone()
            rows = torch.arange(count, device=logits.device)
            logits[rows, guesses] = to_device(wanted.to(logits.dtype), logits.device)
        return logits
