"""Classes of holes, temperatures, draft lengths and peers in one run, interleaved: medians and their spread."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.bench.comparison import PLAIN, SPECULATIVE, machine
from engine.bench.drafters import replay
from engine.bench.llama_peers import LLAMA_CPP
from engine.bench.peer import Peer
from engine.bench.peers import TRANSFORMERS
from engine.endless import without_ends
from engine.generation import encode, generate
from engine.holes import Hole
from engine.loading import LoadedPair
from engine.record import Completion
from engine.request import GREEDY, CompletionRequest, Sampling

TOP_P = 0.95  # of sampled rows


@dataclass(frozen=True, slots=True)
class Row:
    """One hole, decoded in one way. identical: to our own plain decoding; None where nothing promises that."""

    kind: str
    temperature: float  # 0: greedy
    way: str  # plain, speculative (as `auto` decides), fixed:N, or a peer
    ms_per_token: float
    ttft_ms: float
    tokens_per_forward: float | None
    accepted_length: float | None  # a cycle
    identical: bool | None


def measure(
    pair: LoadedPair,
    holes: Sequence[Hole],
    tokens: int,
    temperatures: Sequence[float],
    lengths: Sequence[int],
    peers: Mapping[str, Peer],
    each: Callable[[Hole, Sequence[Row]], None],
) -> tuple[list[Row], float]:
    """Rows, and tokens a forward for the greedy tokens in random order, which nothing can guess.

    Every hole is decoded from a cold cache in each way, end tokens banned; who begins changes from hole to hole.
    """
    pair, rows, rng = without_ends(pair), list[Row](), random.Random(0)
    shuffled = forwards = 0
    for index, hole in enumerate(holes):
        found = list[Row]()
        for temperature in temperatures:
            sampling = GREEDY if temperature == 0 else Sampling("sampled", temperature, top_p=TOP_P)
            request = CompletionRequest(hole.prefix, hole.suffix, hole.path, sampling=sampling, max_tokens=tokens)
            runs = _own(pair, request, lengths, index)
            answers = {way: run.token_ids for way, run in runs.items()} if temperature == 0 else {}
            found += [_row(hole.kind, temperature, way, run, answers) for way, run in runs.items()]
            if temperature == 0:
                found += _others(pair, request, hole.kind, peers, index, answers[PLAIN])
                answer = rng.sample(answers[PLAIN], len(answers[PLAIN]))
                if (drafter := pair.drafter()) is not None:
                    forwards += replay(drafter, encode(pair, request).ids, answer, pair.draft_length)
                    shuffled += len(answer)
        rows += found
        each(hole, found)
    return rows, round(shuffled / forwards, 3) if forwards else 1.0


def _own(pair: LoadedPair, request: CompletionRequest, lengths: Sequence[int], turn: int) -> dict[str, Completion]:
    ways: dict[str, int | None] = {PLAIN: None, SPECULATIVE: None, **{f"fixed:{length}": length for length in lengths}}
    order, runs = list(ways), dict[str, Completion]()
    for way in [*order[turn % len(order) :], *order[: turn % len(order)]]:
        pair.forget()
        drafter = None if way == PLAIN else pair.drafter(request)
        *_, last = generate(pair, request, drafter, ways[way])
        assert last.completion is not None
        runs[way] = last.completion
    return {way: runs[way] for way in order}


def _row(kind: str, temperature: float, way: str, run: Completion, answers: Mapping[str, tuple[int, ...]]) -> Row:
    first = run.accepted_lengths[0] + 1  # tokens that the first forward emitted
    return Row(
        kind,
        temperature,
        way,
        (run.total_ms - run.ttft_ms) / max(run.tokens - first, 1),
        run.ttft_ms,
        run.tokens / run.target_forwards,
        statistics.mean(run.accepted_lengths),
        answers[way] == answers[PLAIN] if answers else None,
    )


def _others(
    pair: LoadedPair,
    request: CompletionRequest,
    kind: str,
    peers: Mapping[str, Peer],
    turn: int,
    plain: tuple[int, ...],
) -> list[Row]:
    names, prompt = list(peers), encode(pair, request).ids
    rows = []
    for name in [*names[turn % max(len(names), 1) :], *names[: turn % max(len(names), 1)]]:
        run = peers[name](prompt, request.max_tokens)
        same = run.token_ids == plain if run.token_ids else None
        rows.append(Row(kind, 0.0, name, run.ms_per_token, run.ttft_ms, None, None, same))
    return rows


def document(pair: LoadedPair, rows: Sequence[Row], control: float) -> dict[str, Any]:
    """One JSON object: medians, with quartiles by class. `ms_per_token` and `ratios` are of greedy rows; ratios are
    medians over holes of what was measured side by side; null where a peer is absent."""
    greedy = [row for row in rows if row.temperature == 0]
    kinds = sorted({row.kind for row in rows})
    temperatures = sorted({row.temperature for row in rows})
    llama = list(dict.fromkeys(row.way for row in greedy if row.way.startswith(LLAMA_CPP)))
    own = [row for row in greedy if row.identical is not None and row.way not in (*TRANSFORMERS, *llama)]
    lengths = sorted({row.way for row in greedy if row.way.startswith("fixed:")})
    found = {name for name in TRANSFORMERS if _of(greedy, name)}
    return {
        "machine": machine(pair),
        "pair": pair.name,
        "holes": len(_of(greedy, PLAIN)) or len(_of(rows, PLAIN)) // len(temperatures),
        "classes": {
            kind: {
                f"T={temperature:g}": _class([r for r in rows if (r.kind, r.temperature) == (kind, temperature)])
                for temperature in temperatures
            }
            for kind in kinds
        },
        "ms_per_token": {
            name: _median([row.ms_per_token for row in _of(greedy, name)])
            for name in (PLAIN, SPECULATIVE, *TRANSFORMERS, *llama)
        }
        | {LLAMA_CPP: _best(greedy, llama)},
        "ratios": {
            "speculative_over_plain": _ratio(greedy, (PLAIN,)),
            "over_transformers_plain": _ratio(greedy, (TRANSFORMERS[0],)),
            "over_transformers_best": _ratio(greedy, tuple(found)),
            "over_llama_cpp": _ratio(greedy, llama),
            "auto_over_best_fixed": _ratio(greedy, lengths),
        },
        "tokens_per_forward": {pair.drafter_name: _median([r.tokens_per_forward for r in _of(greedy, SPECULATIVE)])},
        "control_tokens_per_forward": {pair.drafter_name: control},
        "identical": [sum(row.identical is True for row in own), len(own)],
    }


def _of(rows: Sequence[Row], way: str) -> list[Row]:
    return [row for row in rows if row.way == way]


def _class(rows: Sequence[Row]) -> dict[str, Any]:
    ways = dict.fromkeys(row.way for row in rows)
    return {way: _summary(_of(rows, way)) for way in ways}


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    times = [row.ms_per_token for row in rows]
    return {
        "ms_per_token": _median(times),
        "quartiles": [round(value, 3) for value in statistics.quantiles(times, n=4)] if len(times) > 1 else [],
        "ttft_ms": _median([row.ttft_ms for row in rows]),
        "tokens_per_forward": _median([row.tokens_per_forward for row in rows]),
        "accepted_length": _median([row.accepted_length for row in rows]),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 3) if known else None


def _best(rows: Sequence[Row], ways: Sequence[str]) -> float | None:
    """The least median, of milliseconds a token."""
    return min(
        (found for way in ways if (found := _median([r.ms_per_token for r in _of(rows, way)])) is not None),
        default=None,
    )


def _ratio(rows: Sequence[Row], others: Sequence[str]) -> float | None:
    """How many times as fast `auto` is as the one of `others` with the least median; median over holes."""
    medians = {name: statistics.median(r.ms_per_token for r in _of(rows, name)) for name in others if _of(rows, name)}
    if not medians:
        return None
    best = _of(rows, min(medians, key=lambda name: medians[name]))
    pairs = zip(best, _of(rows, SPECULATIVE), strict=True)
    return _median([theirs.ms_per_token / ours.ms_per_token for theirs, ours in pairs])


def plot(rows: Sequence[Row], path: Any) -> None:
    """Tokens a second and accepted length by draft length, a line a class; PNG or SVG. Raises ImportError without
    matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    speed, accepted = figure.subplots(1, 2)
    greedy = [row for row in rows if row.temperature == 0] or list(rows)
    ways = list(dict.fromkeys(row.way for row in greedy if row.accepted_length is not None))
    for kind in sorted({row.kind for row in greedy}):
        chosen = [_summary([r for r in _of(greedy, way) if r.kind == kind]) for way in ways]
        speed.plot(ways, [1000 / row["ms_per_token"] for row in chosen], marker="o", label=kind)
        accepted.plot(ways, [row["accepted_length"] for row in chosen], marker="o", label=kind)
    speed.set_ylabel("tokens a second")
    accepted.set_ylabel("guesses accepted a cycle")
    for panel in (speed, accepted):
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(axis="x", rotation=30)
    speed.legend(frameon=False)
    figure.savefig(path, dpi=130)
