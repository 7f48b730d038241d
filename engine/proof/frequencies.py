"""First-token frequencies: many draws through guess and verdict, against the target's own law.

The drafts are those of the real drafter. Draws are made many at a time, as `verify` makes each one; so that this is no
claim, some are made one by one by `propose` and `verify` themselves, and must come out alike to the token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import ConfigError, DrafterName
from engine.drafters import Context, Drafter
from engine.generation import encode
from engine.loading import LoadedPair
from engine.model import CachedModel
from engine.proof.goodness import Fit, fit
from engine.request import CompletionRequest, Sampling
from engine.runners import Runner, WrappedRunner
from engine.sampling import Noise, Uniforms, draw_many, warp
from engine.speculation import ROOT, Draft, residual, verify

# Four places where many tokens are possible, and the draft model is more often wrong than right.
PROMPTS = (
    CompletionRequest("import json\n\ndef load(path):\n    with open(path) as file:\n        return ", "\n", "load.py"),
    CompletionRequest("for name in sorted(names):\n    if name.", "\n        print(name)\n", "names.py"),
    CompletionRequest("def mean(values):\n    total = 0\n    for value in values:\n        ", "\n", "mean.py"),
    CompletionRequest("parser = argparse.ArgumentParser()\nparser.add_argument(", "\n\nmain()\n", "run.py"),
)
LAWS = (Sampling("sampled", temperature=1.0), Sampling("sampled", temperature=1.0, top_p=0.9))
SAMPLED: tuple[DrafterName, ...] = ("model", "merged")  # drafters that draw guesses

_SHOWN, _SHOWN_DRAFT = 8, 4  # likeliest tokens of the target, and of the draft besides
_BLOCK = 1 << 16  # draws of one seed; a position of its noise each
_ONE_BY_ONE = 32  # draws of each block
_GUESSES = 8  # of a draft that has one draw


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

    drafter: str
    prompt: str  # its last line
    sampling: Sampling
    draws: int
    tokens: tuple[TokenFrequency, ...]  # the likeliest of the target and of the draft, by the target's law
    fit: Fit  # of what was emitted, to the target's law
    draft_total_variation: float  # draft to target: what would show without correction
    acceptance: float
    expected_acceptance: float  # of the draw the sum of min(p, q): Leviathan et al. (2023), theorem 3.5
    repeated: int  # draws made one by one as well
    alike: int  # of those

    @property
    def passed(self) -> bool:
        error = math.sqrt(max(self.expected_acceptance * (1 - self.expected_acceptance), 0.0) / self.draws)
        expected = abs(self.acceptance - self.expected_acceptance) <= 5 * error + 1e-6
        return self.alike == self.repeated and self.fit.passed and expected


def first_tokens(
    pair: LoadedPair,
    prompts: Sequence[CompletionRequest] = PROMPTS,
    draws: int = 20_000,
    seed: int = 0,
    sampling: Sampling = LAWS[0],
    report: Callable[[float], None] = lambda fraction: None,
) -> Iterator[FirstTokens]:
    """One result a prompt, as it is ready; `report` hears the fraction of the present prompt that is done."""
    if pair.drafter_name not in SAMPLED or pair.draft is None:
        raise ConfigError("drafter", f"only {' and '.join(SAMPLED)} draw guesses, and need a draft model for it")
    start = seed + (SAMPLED.index(pair.drafter_name) << 40)  # or all would draw the same tokens
    for index, request in enumerate(prompts):
        sampled = replace(request, sampling=sampling)
        prompt = encode(pair, sampled).ids
        pair.draft.forget()  # the runner gets other rows
        draft = CachedModel(_Remembering(pair.draft.runner), pair.draft.vocab)
        drafter = replace(pair, draft=draft).drafter(sampled)
        assert drafter is not None
        for _ in drafter.prepare(prompt):
            pass
        p = warp(pair.target.logits(prompt), sampling)[0].cpu()
        drafts = _Drafts(drafter, Context(prompt, len(prompt), sampling, Noise(0), _ONE_DRAW))
        yield _result(pair, sampled, p, drafts, _draw_many(p, drafts, draws, start + (index << 32), report))


class _Remembering(WrappedRunner):
    """A runner that does not compute again what it was asked last: that prompt's law, for thousands of guesses."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self._asked: object = None
        self._logits = torch.empty(0)

    def forward(self, tokens: Sequence[int], start: int, tail: int, parents: Sequence[int] | None = None) -> Tensor:
        asked = (*tokens,), start, tail, parents
        if asked != self._asked:
            self._asked, self._logits = asked, super().forward(tokens, start, tail, parents)
        return self._logits


class _OneDraw:
    """A budget for one draw, and for as many certain guesses as there is room for."""

    typical = 1.0

    def acceptance(self, confidence: float, source: str = "") -> float:
        return confidence

    def wants(self, reach: float, count: int) -> bool:
        return count == 0

    def keeps(self, reach: float, count: int) -> bool:
        return True

    def fits(self, reaches: Sequence[float], behind: int = 0) -> int:
        return len(reaches)


_ONE_DRAW = _OneDraw()


class _From(Noise):
    """Another noise from one of its positions on."""

    def __init__(self, noise: Noise, position: int) -> None:
        self._noise, self._position = noise, position

    def at(self, position: int, sibling: int = 0) -> Uniforms:
        return self._noise.at(self._position + position, sibling)


class _Drafts:
    """What the drafter guesses for one prompt, by what its draw is. `q` [vocab]: the law of the draw."""

    def __init__(self, drafter: Drafter, context: Context) -> None:
        self.name = drafter.name
        self._drafter, self._context = drafter, context
        self._beside: dict[int, frozenset[int]] = {}
        self.propose(Noise(0))  # the first forward computes the end of the prompt, the others a single row
        self.q = self._law(self.propose(Noise(0)))

    def propose(self, noise: Noise) -> Draft:
        draft = self._drafter.propose(replace(self._context, noise=noise), _GUESSES)
        return draft if draft.probs is None else draft.with_probs(draft.probs.cpu())

    def beside(self, guess: int, noise: Noise) -> frozenset[int]:
        """The certain guesses beside this draw; `noise` is one that gives it."""
        if guess not in self._beside:
            draft = self.propose(noise)
            if draft.tokens[0] != guess or not torch.allclose(self._law(draft), self.q, rtol=0, atol=1e-6):
                raise RuntimeError(f"the drafter {self.name} does not draw its guess from one law")
            self._beside[guess] = frozenset(draft.tokens[child] for child in draft.children(ROOT)[1:])
        return self._beside[guess]

    def expected_acceptance(self, p: Tensor) -> float:
        """Of a draw or of a certain guess beside it."""
        left, rejected = residual(p, self.q).double(), (self.q - p).clamp(min=0).double()
        beside = ((guess, float(left[list(tokens)].sum())) for guess, tokens in self._beside.items() if tokens)
        return float(torch.minimum(p, self.q).sum()) + sum(float(rejected[guess]) * share for guess, share in beside)

    @staticmethod
    def _law(draft: Draft) -> Tensor:
        assert draft.probs is not None
        return draft.probs[0]


class _Drawn(NamedTuple):
    """counts: how often each token came first, [vocab] int64. accepted: draws whose first token had been guessed."""

    counts: Tensor
    accepted: int
    repeated: int
    alike: int


@torch.inference_mode()
def _draw_many(p: Tensor, drafts: _Drafts, draws: int, seed: int, report: Callable[[float], None]) -> _Drawn:
    """p: [vocab]. A guess and a verdict a draw: `verify` for a root with one draw, over whole blocks."""
    q, left = drafts.q, residual(p, drafts.q)
    counts, accepted, repeated, alike = torch.zeros(len(p), dtype=torch.int64), 0, 0, 0
    for start in range(0, draws, _BLOCK):
        noise = Noise((seed + start) % 2**64)
        numbers = torch.from_numpy(noise.first(min(_BLOCK, draws - start)))
        guesses = draw_many(q, numbers[:, 0])
        true = numbers[:, 1] * q.double()[guesses] < p.double()[guesses]
        tokens = torch.where(true, guesses, draw_many(left, numbers[:, 2]))
        guessed = [
            passed or token in drafts.beside(guess, _From(noise, place))
            for place, (passed, guess, token) in enumerate(
                zip(true.tolist(), guesses.tolist(), tokens.tolist(), strict=True)
            )
        ]
        counts += torch.bincount(tokens, minlength=len(p))
        accepted += sum(guessed)
        for place in range(min(_ONE_BY_ONE, len(guessed))):
            repeated += 1
            alike += _one_draw(p, drafts, _From(noise, place)) == (int(tokens[place]), guessed[place])
        report(min(start + _BLOCK, draws) / draws)
    return _Drawn(counts, accepted, repeated, alike)


def _one_draw(p: Tensor, drafts: _Drafts, noise: Noise) -> tuple[int, bool]:
    """The first token by the real code, and whether it had been guessed. What stands behind it is not looked at."""
    draft = drafts.propose(noise)
    verdict = verify(p.expand(len(draft) + 1, -1), draft, noise, 0)
    return draft.tokens[verdict.path[0]] if verdict.path else verdict.next_token, bool(verdict.path)


def _result(pair: LoadedPair, request: CompletionRequest, p: Tensor, drafts: _Drafts, drawn: _Drawn) -> FirstTokens:
    """p: [vocab]."""
    target, draft, draws = p.double(), drafts.q.double(), int(drawn.counts.sum())
    tokens = (
        TokenFrequency(
            text=pair.tokenizer.decode([token], skip_special_tokens=False),
            target=float(target[token]),
            draft=float(draft[token]),
            observed=float(drawn.counts[token]) / draws,
            standard_error=math.sqrt(float(target[token]) * (1 - float(target[token])) / draws),
        )
        for token in _worth_showing(target, draft)
    )
    return FirstTokens(
        drafter=drafts.name,
        prompt=request.prefix.rsplit("\n", 1)[-1],
        sampling=request.sampling,
        draws=draws,
        tokens=tuple(tokens),
        fit=fit(target / target.sum(), drawn.counts),
        draft_total_variation=float((draft - target).abs().sum()) / 2,
        acceptance=drawn.accepted / draws,
        expected_acceptance=drafts.expected_acceptance(p),
        repeated=drawn.repeated,
        alike=drawn.alike,
    )


def _worth_showing(p: Tensor, q: Tensor) -> list[int]:
    """The likeliest tokens of the target and, of the others, those of the draft; the target's likeliest first."""
    shown = p.topk(min(_SHOWN, len(p))).indices
    others = q.index_fill(0, shown, 0.0)
    shown = torch.cat([shown, others.topk(min(_SHOWN_DRAFT, len(q) - len(shown))).indices])
    shown = shown[p[shown].argsort(descending=True, stable=True)]
    return [token for token in shown.tolist() if p[token] > 0 or q[token] > 0]
