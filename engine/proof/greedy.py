"""Greedy equality: on holes cut from real files, speculative decoding gives plain decoding's tokens, one by one."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.config import ConfigError
from engine.decoder import SpeculativeDecoder, Step
from engine.generation import encode
from engine.loading import LoadedPair
from engine.request import GREEDY, CompletionRequest
from engine.sampling import Noise

# What a hole sees of its file, in characters: enough for a real prompt, short enough for a CPU.
_BEFORE, _AFTER = 1500, 500
_SMALLEST_FILE = 2000
_FOREIGN = frozenset({"site-packages", "dist-packages", "test", "tests"})  # tests hold broken files on purpose


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
    """Holes of one to three lines at random cursors in the Python files under `folder` (the standard library).

    The same files and seed give the same holes. Raises ValueError if no file is long enough.
    """
    folder = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    rng = np.random.default_rng(seed)
    paths = [path for path in sorted(folder.rglob("*.py")) if not _FOREIGN & set(path.relative_to(folder).parts)]
    paths = [path for path in paths if path.stat().st_size >= _SMALLEST_FILE]
    if not paths:
        raise ValueError(f"{folder} has no Python file of {_SMALLEST_FILE} bytes or more")
    picked = [paths[index] for index in rng.integers(len(paths), size=count)]
    return [_cut(path.read_text("utf-8", "replace"), path.relative_to(folder).as_posix(), rng) for path in picked]


def _cut(text: str, path: str, rng: np.random.Generator) -> CompletionRequest:
    """Takes the rest of a line at a random character that is no white space, and up to two lines more."""
    cursors = [index for index, character in enumerate(text) if not character.isspace()]
    start = end = int(rng.choice(cursors))
    for _ in range(int(rng.integers(1, 4))):
        end = text.find("\n", end + 1)
        if end < 0:
            end = len(text)
    return CompletionRequest(text[max(start - _BEFORE, 0) : start], text[end : end + _AFTER], path)
