"""Equality on holes cut from real files: speculative decoding gives plain decoding's tokens, one by one; greedily with
every drafter, and drawn with the same seed where all guesses are certain.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.config import ConfigError
from engine.decoder import SpeculativeDecoder, Step
from engine.generation import encode
from engine.holes import cut
from engine.loading import LoadedPair
from engine.request import GREEDY, CompletionRequest, Sampling
from engine.sampling import Noise, warp

LIBRARY = Path(sysconfig.get_path("stdlib"))

# A sum over a law in float32 depends on the width of the forward by 3e-7 (measured); a draw of 1 in 10,000 falls there.
_ROUNDING = 3e-6

# What the model sees around a hole, in characters: enough for a real prompt, short enough for a CPU.
_BEFORE, _AFTER = 1500, 500


@dataclass(frozen=True, slots=True)
class Difference:
    """Where speculative decoding left the plain path. A tiny margin is a tie that rounding decides."""

    hole: int
    position: int  # of the token, in the completion
    # Between the target's two highest logits there; if drawn, the probability between the number that draws and the
    # token, of the two, that is farther from it.
    margin: float


@dataclass(frozen=True, slots=True)
class Equality:
    """`equal`: holes whose completions agree, decoded past every end token so that all tokens are really compared.
    `equal_to_end`: holes whose completions agree where the model may end them. `ties`: of the others, drawn
    ones that rounding decided."""

    holes: int
    equal: int
    equal_to_end: int
    tokens: int  # compared past the end
    drafted: int
    accepted: int
    forwards: int
    differences: tuple[Difference, ...]
    ties: int = 0

    @property
    def passed(self) -> bool:
        return self.equal + self.ties == self.holes > 0 and self.equal_to_end + self.ties >= self.holes


def equality(
    pair: LoadedPair,
    holes: Sequence[CompletionRequest],
    max_tokens: int = 48,
    report: Callable[[float], None] = lambda fraction: None,
    sampling: Sampling = GREEDY,
) -> Equality:
    """Decodes every hole plainly and with the pair's drafter; `report` hears the fraction that is done.

    Each hole is its own seed. Expect equality in float32, and drawn only of a pair from `with_certain_guesses`; in
    bfloat16 a wider forward may round a tie the other way.
    """
    if pair.drafter() is None:
        raise ConfigError("draft", "a proof needs guesses to verify; leave out --draft none and --drafter none")
    equal, equal_to_end, compared, steps, differences = 0, 0, 0, list[Step](), list[Difference]()
    for index, hole in enumerate(holes):
        request, noise = replace(hole, sampling=sampling, max_tokens=max_tokens), Noise(index)
        plain, _ = _decode(pair, request, noise, speculative=False, ends=False)
        guessed, cycles = _decode(pair, request, noise, speculative=True, ends=False)
        ended, _ = _decode(pair, request, noise, speculative=True, ends=True)
        equal += guessed == plain
        equal_to_end += ended == _until_end(plain, pair.end_tokens)
        if guessed != plain:
            differences.append(_difference(pair, request, index, plain, guessed))
        compared += len(plain)
        steps += cycles
        report((index + 1) / len(holes))
    return Equality(
        holes=len(holes),
        equal=equal,
        equal_to_end=equal_to_end,
        tokens=compared,
        drafted=sum(step.drafted for step in steps),
        accepted=sum(step.accepted for step in steps),
        forwards=sum(step.forwards for step in steps),
        differences=tuple(differences),
        ties=0 if sampling.greedy else sum(difference.margin < _ROUNDING for difference in differences),
    )


def with_certain_guesses(pair: LoadedPair) -> LoadedPair | None:
    """The pair with those of its sources that do not draw; None if it has none."""
    if pair.drafter_name in ("none", "model"):
        return None
    return replace(pair, draft=None)


def _decode(
    pair: LoadedPair, request: CompletionRequest, noise: Noise, *, speculative: bool, ends: bool
) -> tuple[list[int], list[Step]]:
    """The tokens, and the steps that brought them."""
    drafter = pair.drafter(request) if speculative else None
    end_tokens = pair.end_tokens if ends else frozenset()
    length = pair.draft_length if pair.drafter_name == "model" else pair.longest_draft
    decoder = SpeculativeDecoder(pair.target, drafter, request.sampling, noise, end_tokens, length)
    steps = list(decoder.decode(encode(pair, request).ids, request.max_tokens))
    return [token for step in steps for token in step.tokens], steps


def _until_end(tokens: list[int], end_tokens: frozenset[int]) -> list[int]:
    ends = (index + 1 for index, token in enumerate(tokens) if token in end_tokens)
    return tokens[: next(ends, len(tokens))]


def _difference(
    pair: LoadedPair, request: CompletionRequest, hole: int, plain: list[int], guessed: list[int]
) -> Difference:
    pairs = enumerate(zip(plain, guessed, strict=False))
    position = next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(plain), len(guessed)))
    logits = pair.target.logits([*encode(pair, request).ids, *plain[:position]])
    if request.sampling.greedy:
        first, second = logits[0].float().topk(2).values.tolist()
        return Difference(hole, position, first - second)
    mass = warp(logits, request.sampling)[0].double().cumsum(dim=-1)
    mass = torch.nn.functional.pad(mass / mass[-1], (1, 0))
    number = Noise(hole).at(position).target
    gaps = [
        max(float(mass[token]) - number, number - float(mass[token + 1]))
        for token in (plain[position], guessed[position])
    ]
    return Difference(hole, position, max(gaps))


def cut_holes(folder: Path | None = None, count: int = 200, seed: int = 0) -> list[CompletionRequest]:
    """Requests at holes in the Python files under `folder`, LIBRARY if None; see `engine.holes.cut`."""
    holes = cut(LIBRARY if folder is None else folder, count, seed)
    return [
        CompletionRequest(hole.prefix[-_BEFORE:], hole.suffix[:_AFTER], hole.path, document=hole.path) for hole in holes
    ]
