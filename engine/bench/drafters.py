"""Every drafter on the same holes: greedy completions that end by themselves, the rest of the folder as workspace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from engine.bench.comparison import machine
from engine.bench.memory import held_bytes
from engine.config import ConfigError, DrafterName
from engine.drafters import Context, Drafter
from engine.drafters.lookahead import NGramPool
from engine.generation import encode, generate
from engine.holes import Hole
from engine.loading import LoadedPair
from engine.record import Completion
from engine.request import GREEDY, CompletionRequest
from engine.sampling import Noise
from engine.speculation import ROOT
from engine.workspace_files import fill_workspace

FREE = "lookup+workspace"  # the merged tree without the draft model
_NAMES = (*(name for name in get_args(DrafterName) if name not in ("auto", "none")), FREE)


class Arm(NamedTuple):
    """A drafter, or FREE, and the most guesses a cycle; None as the policy finds."""

    name: str
    length: int | None

    def __str__(self) -> str:
        return self.name if self.length is None else f"{self.name}:{self.length}"


@dataclass(frozen=True, slots=True)
class Result:
    """One hole: plain decoding, every arm, and how many forwards each took for the same tokens in random order."""

    hole: Hole
    plain: Completion
    runs: dict[Arm, Completion]
    shuffled: dict[Arm, int]
    memory: dict[Arm, int]  # bytes of what the drafter alone keeps


def arms(text: str) -> list[Arm]:
    """Of `lookup:16,merged`. Raises ConfigError."""
    found = list[Arm]()
    for part in text.split(","):
        name, _, length = part.strip().partition(":")
        if name not in _NAMES or not (length or "1").isdecimal():
            fix = f"write NAME or NAME:GUESSES, separated by commas: {', '.join(_NAMES)}"
            raise ConfigError("drafters", f"{part!r} is none; {fix}")
        found.append(Arm(name, int(length) if length else None))
    return found


def measure(
    pair: LoadedPair, holes: Sequence[Hole], arms: Sequence[Arm], tokens: int, each: Callable[[Result], None]
) -> list[Result]:
    """Decodes every hole plainly and with each arm, at most `tokens` tokens. The prompt is computed once."""
    results, rng = list[Result](), random.Random(0)
    own = {arm: replace(pair, ngrams=NGramPool()) for arm in arms}  # or one would learn the answer from another
    for hole in holes:
        request = CompletionRequest(hole.prefix, hole.suffix, hole.path, max_tokens=tokens, document=hole.path)
        plain = _last(generate(pair, request, None))
        drafters = {arm: _drafter(own[arm], arm, request) for arm in arms}
        runs = {arm: _last(generate(pair, request, drafter, arm.length)) for arm, drafter in drafters.items()}
        answer, prompt = [*plain.token_ids], encode(pair, request).ids
        rng.shuffle(answer)
        shuffled = {
            arm: replay(
                _drafter(replace(pair, ngrams=NGramPool()), arm, request),
                prompt,
                answer,
                arm.length or pair.draft_length,
            )
            for arm in arms
        }
        memory = {arm: held_bytes(drafter, beside=pair.target) for arm, drafter in drafters.items()}
        results.append(Result(hole, plain, runs, shuffled, memory))
        each(results[-1])
    return results


def measure_packages(
    pair: LoadedPair,
    packages: Mapping[Path, Sequence[Hole]],
    arms: Sequence[Arm],
    tokens: int,
    each: Callable[[Result], None],
) -> tuple[list[Result], list[dict[str, Any]]]:
    """The holes of every package with the rest of it as workspace; and what each workspace was."""
    results, workspaces = list[Result](), list[dict[str, Any]]()
    for folder, holes in packages.items():
        fill_workspace(pair, folder)
        index = pair.workspace
        sizes = {"files": index.files, "tokens": index.tokens, "bytes": index.bytes}
        workspaces.append({"package": folder.name, "holes": len(holes)} | sizes)
        results += measure(pair, holes, arms, tokens, each)
    return results, workspaces


def replay(drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], length: int) -> int:
    """Forwards of a target that says `answer`, and nothing else whatever stands before it."""
    for _ in drafter.prepare(prompt):
        pass
    tokens, end, forwards = list(prompt), len(prompt) + len(answer), 0
    while len(tokens) < end:
        limit = min(length, end - len(tokens) - 1)
        draft = drafter.propose(Context(tokens, len(prompt), GREEDY, Noise(0)), limit).first(limit) if limit else None
        forwards += 1
        node = ROOT
        while draft is not None:
            wanted = answer[len(tokens) - len(prompt)]
            node = next((child for child in draft.children(node) if draft.tokens[child] == wanted), ROOT)
            if node == ROOT:
                break
            tokens.append(wanted)
        tokens.append(answer[len(tokens) - len(prompt)])
    return forwards


def document(pair: LoadedPair, results: Sequence[Result], workspaces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The measurements as one JSON object: by kind of hole and arm, sums over holes divided by one another."""
    kinds = sorted({result.hole.kind for result in results})
    used = list(results[0].runs)
    return {
        "machine": machine(pair),
        "pair": pair.name,
        "holes": len(results),
        "classes": {
            kind: {str(arm): summary([result for result in results if result.hole.kind == kind], arm) for arm in used}
            for kind in kinds
        },
        "tokens_per_forward": {str(arm): summary(results, arm)["tokens_per_forward"] for arm in used},
        "control_tokens_per_forward": {str(arm): summary(results, arm)["control_tokens_per_forward"] for arm in used},
        "identical": {str(arm): [summary(results, arm)["identical"], len(results)] for arm in used},
        "workspaces": list(workspaces),
    }


def summary(results: Sequence[Result], arm: Arm) -> dict[str, Any]:
    """Of one arm. Tokens are those emitted, an end token among them: plain decoding has one a forward."""
    runs = [result.runs[arm] for result in results]
    forwards = sum(run.target_forwards for run in runs)
    emitted = _emitted(runs)
    per_second = 1000 * emitted / sum(map(_ms, runs))
    plain = [result.plain for result in results]
    plain_per_second = 1000 * _emitted(plain) / sum(map(_ms, plain))
    rejected_at = [place for run in runs for place in run.rejected_at]
    shuffled = sum(result.shuffled[arm] for result in results)
    return {
        "holes": len(runs),
        "tokens": emitted / len(runs),
        "tokens_per_forward": round(emitted / forwards, 3),
        "drafted": round(sum(run.drafted for run in runs) / forwards, 2),
        "accepted": round(sum(run.accepted for run in runs) / forwards, 2),
        "rejected_at": round(sum(rejected_at) / max(len(rejected_at), 1), 2),
        "draft_ms": round(sum(run.draft_ms for run in runs) / forwards, 2),
        "verify_ms": round(sum(run.verify_ms for run in runs) / forwards, 2),
        "tokens_per_second": round(per_second, 1),
        "plain_tokens_per_second": round(plain_per_second, 1),
        "over_plain": round(per_second / plain_per_second, 3),
        "memory_mb": round(max(result.memory[arm] for result in results) / 2**20, 1),
        "control_tokens_per_forward": round(sum(result.plain.tokens for result in results) / max(shuffled, 1), 3),
        "identical": sum(result.runs[arm].token_ids == result.plain.token_ids for result in results),
    }


def _emitted(runs: Sequence[Completion]) -> int:
    return sum(run.tokens + (run.stop == "eos") for run in runs)


def _ms(run: Completion) -> float:
    """Of the cycles alone: the plain run finds less of the prompt computed."""
    return run.draft_ms + run.verify_ms


def _drafter(pair: LoadedPair, arm: Arm, request: CompletionRequest) -> Drafter:
    name: Any = "merged" if arm.name == FREE else arm.name
    draft = None if arm.name == FREE else pair.draft
    drafter = replace(pair, drafter_name=name, draft=draft).drafter(request)
    if drafter is None:
        files = {"heads": "--heads FILE", "blockwise": "--heads FILE", "eagle": "--eagle FILE"}
        needs = files.get(arm.name, "a draft model")
        raise ConfigError("drafters", f"{arm.name!r} needs {needs}; give it, or leave {arm.name} out")
    return drafter


def _last(chunks: Iterator[Any]) -> Completion:
    *_, last = chunks
    completion: Completion = last.completion
    return completion
