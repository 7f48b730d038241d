"""First-token frequencies: many real draws through guess and verdict, against the target's own law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import ConfigError
from engine.generation import encode
from engine.loading import LoadedPair
from engine.proof.goodness import Fit, fit
from engine.request import CompletionRequest, Sampling
from engine.sampling import Noise, draw, warp
from engine.speculation import Draft, verify

# Four places where many tokens are possible, and the draft model is more often wrong than right.
PROMPTS = (
    CompletionRequest("import json\n\ndef load(path):\n    with open(path) as file:\n        return ", "\n", "load.py"),
    CompletionRequest("for name in sorted(names):\n    if name.", "\n        print(name)\n", "names.py"),
    CompletionRequest("def mean(values):\n    total = 0\n    for value in values:\n        ", "\n", "mean.py"),
    CompletionRequest("parser = argparse.ArgumentParser()\nparser.add_argument(", "\n\nmain()\n", "run.py"),
)
LAWS = (Sampling("sampled", temperature=1.0), Sampling("sampled", temperature=1.0, top_p=0.9))

_SHOWN, _SHOWN_DRAFT = 8, 4  # likeliest tokens of the target, and of the draft besides
_BLOCK = 4096  # draws of one seed; a position of its noise each


@dataclass(frozen=True, slots=True)
class TokenFrequency:
    """One token: its probability under the target and the draft, and how often speculative decoding emitted it."""

    text: str
    target: float
    draft: float
    observed: float
    standard_error: float  # of `observed`, were the target's law the truth


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """What `draws` completions of one prompt began with."""

    prompt: str  # its last line
    sampling: Sampling
    draws: int
    tokens: tuple[TokenFrequency, ...]  # the likeliest of the target and of the draft, by the target's law
    fit: Fit  # of what was emitted, to the target's law
    draft_total_variation: float  # draft to target: what would show without correction
    acceptance: float
    expected_acceptance: float  # the sum of min(p, q): Leviathan et al. (2023), theorem 3.5

    @property
    def passed(self) -> bool:
        error = math.sqrt(self.expected_acceptance * (1 - self.expected_acceptance) / self.draws)
        return self.fit.passed and abs(self.acceptance - self.expected_acceptance) <= 5 * error + 1e-6


def first_tokens(
    pair: LoadedPair,
    prompts: Sequence[CompletionRequest] = PROMPTS,
    draws: int = 20_000,
    seed: int = 0,
    sampling: Sampling = LAWS[0],
    report: Callable[[float], None] = lambda fraction: None,
) -> Iterator[FirstTokens]:
    """One result a prompt, as it is ready; `report` hears the fraction of the present prompt that is done."""
    if pair.draft is None:
        raise ConfigError("draft", "a proof needs a draft model; leave out --draft none and --drafter none")
    for index, request in enumerate(prompts):
        prompt = encode(pair, replace(request, sampling=sampling)).ids
        p = warp(pair.target.logits(prompt), sampling)[0].cpu()
        q = warp(pair.draft.logits(prompt), sampling)[0].cpu()
        counts, accepted = _draw_many(p, q, draws, seed + (index << 32), report)
        yield _result(pair, request, sampling, p.double(), q.double(), counts, accepted)


@torch.inference_mode()
def _draw_many(p: Tensor, q: Tensor, draws: int, seed: int, report: Callable[[float], None]) -> tuple[Tensor, int]:
    """(how often each token came first [vocab] int64, how many guesses were accepted): a guess and a verdict a draw.

    p, q: [vocab]. The token after an accepted guess is drawn too, from p once more and with a number of the next
    draw, and not looked at.
    """
    rows, laws = p.expand(2, -1), q[None]
    emitted, accepted = list[int](), 0
    for start in range(0, draws, _BLOCK):
        noise = Noise((seed + start) % 2**64)
        for position in range(min(_BLOCK, draws - start)):
            guess = draw(q, noise.at(position).draft)
            verdict = verify(rows, Draft.chain([guess], laws), noise, position)
            accepted += len(verdict.path)
            emitted.append(guess if verdict.path else verdict.next_token)
        report(min(start + _BLOCK, draws) / draws)
    return torch.bincount(torch.tensor(emitted), minlength=len(p)), accepted


def _result(
    pair: LoadedPair,
    request: CompletionRequest,
    sampling: Sampling,
    p: Tensor,
    q: Tensor,
    counts: Tensor,
    accepted: int,
) -> FirstTokens:
    """p, q: [vocab] float64; counts: [vocab] int64."""
    draws = int(counts.sum())
    tokens = (
        TokenFrequency(
            text=pair.tokenizer.decode([token], skip_special_tokens=False),
            target=float(p[token]),
            draft=float(q[token]),
            observed=float(counts[token]) / draws,
            standard_error=math.sqrt(float(p[token]) * (1 - float(p[token])) / draws),
        )
        for token in _worth_showing(p, q)
    )
    return FirstTokens(
        prompt=request.prefix.rsplit("\n", 1)[-1],
        sampling=sampling,
        draws=draws,
        tokens=tuple(tokens),
        fit=fit(p / p.sum(), counts),
        draft_total_variation=float((q - p).abs().sum()) / 2,
        acceptance=accepted / draws,
        expected_acceptance=float(torch.minimum(p, q).sum()),
    )


def _worth_showing(p: Tensor, q: Tensor) -> list[int]:
    """The likeliest tokens of the target and, of the others, those of the draft; the target's likeliest first."""
    shown = p.topk(min(_SHOWN, len(p))).indices
    others = q.index_fill(0, shown, 0.0)
    shown = torch.cat([shown, others.topk(min(_SHOWN_DRAFT, len(q) - len(shown))).indices])
    shown = shown[p[shown].argsort(descending=True, stable=True)]
    return [token for token in shown.tolist() if p[token] > 0 or q[token] > 0]
