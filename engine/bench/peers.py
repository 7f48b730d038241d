"""What others make of the same weights and prompts: transformers' generate, and llama.cpp's server if it is there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from engine import threads
from engine.bench.llama_peers import llama_peers
from engine.bench.peer import Peer, Run
from engine.config import EngineConfig
from engine.devices import device_for
from engine.loading import LoadedPair, best_dtype
from engine.sources import is_embedded, sources

TRANSFORMERS = ("transformers_plain", "transformers_assisted", "transformers_lookup")
_LOOKUP_TOKENS = 8


@contextmanager
def peers(pair: LoadedPair, config: EngineConfig, wanted: bool = True) -> Iterator[dict[str, Peer]]:
    """By their names in the document, if wanted. Their weights are loaded a second time, in the fastest dtype."""
    if not wanted:
        yield {}
        return
    with ExitStack() as running:
        _, target, draft = sources(config, None)
        ours = is_embedded(target) and (draft is None or is_embedded(draft)) and device_for(config.device).type == "cpu"
        yield transformers_peers(pair, config) | running.enter_context(llama_peers(embedded=ours))


def transformers_peers(pair: LoadedPair, config: EngineConfig) -> dict[str, Peer]:
    device = device_for(config.device)
    dtype = best_dtype(device) if config.dtype == "auto" else config.dtype
    _, target_source, draft_source = sources(config, None)
    target = _model("target", target_source, device, getattr(torch, dtype))
    ends = sorted(pair.end_tokens)
    variants: dict[str, dict[str, Any]] = {TRANSFORMERS[0]: {}}
    if draft_source is not None:
        variants[TRANSFORMERS[1]] = {"assistant_model": _model("draft", draft_source, device, getattr(torch, dtype))}
    variants[TRANSFORMERS[2]] = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}

    def peer(options: dict[str, Any]) -> Peer:
        return lambda prompt, tokens: _generate(target, prompt, tokens, ends, options)

    return {name: peer(options) for name, options in variants.items()}


def _model(role: Any, source: str, device: torch.device, dtype: torch.dtype) -> Any:
    from engine import checkpoints  # seconds

    if is_embedded(source):
        return checkpoints.embedded_model(role, dtype).to(device)
    runner: Any = checkpoints.load_checkpoint(role, source, device, dtype)[0].runner
    return runner.model


class _Watch:
    """What generate calls with new tokens: notes when the first came, and how many at once."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.first_tokens = 0
        self._seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if self._seen_prompt and self.first_s is None:
            self.first_s, self.first_tokens = time.perf_counter(), value.numel()
        self._seen_prompt = True

    def end(self) -> None:
        pass


def _generate(model: Any, prompt: Sequence[int], tokens: int, ends: list[int], options: dict[str, Any]) -> Run:
    torch.set_num_threads(threads.MOST)
    watch, ids = _Watch(), torch.tensor([list(prompt)], device=model.device)
    started = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,  # bans what ends a text, in all variants
            eos_token_id=ends,
            pad_token_id=ends[0],
            streamer=watch,
            **options,
        )
    total_s = time.perf_counter() - started
    new = tuple(output[0, len(prompt) :].tolist())
    ttft_s = (watch.first_s or started + total_s) - started
    behind = max(len(new) - watch.first_tokens, 1)
    return Run(new, 1000 * ttft_s, 1000 * total_s, 1000 * (total_s - ttft_s) / behind)
