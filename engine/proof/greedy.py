"""Greedy equality: on holes cut from real files, speculative decoding gives plain decoding's tokens, one by one."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import ConfigError
from engine.decoder import SpeculativeDecoder, Step
from engine.generation import encode
from engine.holes import cut
from engine.loading import LoadedPair
from engine.request import GREEDY, CompletionRequest
from engine.sampling import Noise

# What the model sees around a hole, in characters: enough for a real prompt, short enough for a CPU.
_BEFORE, _AFTER = 1500, 500


@dataclass(frozen=True, slots=True)
class Difference:
    """Where speculative decoding left the plain path. A tiny margin is a tie that rounding decides."""

    hole: int
    position: int  # of the token, in the completion
    margin: float  # between the target's two highest logits there


@dataclass(frozen=True, slots=True)
class GreedyEquality:
    """`equal`: holes whose completions agree, decoded past every end token so that all tokens are really compared.
    `equal_to_end`: holes whose completions agree where the model may end them."""

    holes: int
    equal: int
    equal_to_end: int
    tokens: int  # compared past the end
    drafted: int
    accepted: int
    forwards: int
    differences: tuple[Difference, ...]

    @property
    def passed(self) -> bool:
        return self.equal == self.equal_to_end == self.holes > 0


def greedy_equality(
    pair: LoadedPair,
    holes: Sequence[CompletionRequest],
    max_tokens: int = 48,
    report: Callable[[float], None] = lambda fraction: None,
) -> GreedyEquality:
    """Decodes every hole plainly and with the pair's drafter; `report` hears the fraction that is done.

    Expect equality in float32; in bfloat16 a wider forward may round a tie the other way.
    """
    if pair.drafter() is None:
        raise ConfigError("draft", "a proof needs guesses to verify; leave out --draft none and --drafter none")
    equal, equal_to_end, compared, steps, differences = 0, 0, 0, list[Step](), list[Difference]()
    for index, hole in enumerate(holes):
        prompt = encode(pair, replace(hole, sampling=GREEDY, max_tokens=max_tokens)).ids
        plain, _ = _decode(pair, prompt, max_tokens, speculative=False, ends=False)
        guessed, cycles = _decode(pair, prompt, max_tokens, speculative=True, ends=False)
        ended, _ = _decode(pair, prompt, max_tokens, speculative=True, ends=True)
        equal += guessed == plain
        equal_to_end += ended == _until_end(plain, pair.end_tokens)
        if guessed != plain:
            differences.append(_difference(pair, prompt, index, plain, guessed))
        compared += len(plain)
        steps += cycles
        report((index + 1) / len(holes))
    return GreedyEquality(
        holes=len(holes),
        equal=equal,
        equal_to_end=equal_to_end,
        tokens=compared,
        drafted=sum(step.drafted for step in steps),
        accepted=sum(step.accepted for step in steps),
        forwards=sum(step.forwards for step in steps),
        differences=tuple(differences),
    )


def _decode(
    pair: LoadedPair, prompt: Sequence[int], limit: int, *, speculative: bool, ends: bool
) -> tuple[list[int], list[Step]]:
    """The tokens, and the steps that brought them."""
    drafter = pair.drafter() if speculative else None
    end_tokens = pair.end_tokens if ends else frozenset()
    decoder = SpeculativeDecoder(pair.target, drafter, GREEDY, Noise(0), end_tokens, pair.draft_length)
    steps = list(decoder.decode(prompt, limit))
    return [token for step in steps for token in step.tokens], steps


def _until_end(tokens: list[int], end_tokens: frozenset[int]) -> list[int]:
    ends = (index + 1 for index, token in enumerate(tokens) if token in end_tokens)
    return tokens[: next(ends, len(tokens))]


def _difference(pair: LoadedPair, prompt: Sequence[int], hole: int, plain: list[int], guessed: list[int]) -> Difference:
    pairs = enumerate(zip(plain, guessed, strict=False))
    position = next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(plain), len(guessed)))
    first, second = pair.target.logits([*prompt, *plain[:position]])[0].float().topk(2).values.tolist()
    return Difference(hole, position, first - second)


def cut_holes(folder: Path | None = None, count: int = 200, seed: int = 0) -> list[CompletionRequest]:
    """Requests at holes in the Python files under `folder`, the standard library if None; see `engine.holes.cut`."""
    holes = cut(Path(sysconfig.get_path("stdlib")) if folder is None else folder, count, seed)
    return [CompletionRequest(hole.prefix[-_BEFORE:], hole.suffix[:_AFTER], hole.path) for hole in holes]
