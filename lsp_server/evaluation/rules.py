"""Each rule against its absence, on every class of cases: exact match, edit similarity, and how many fare better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from lsp_server import shape
from lsp_server.context.sources import SOURCES
from lsp_server.evaluation.cases import Case, request

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.holes import Hole
    from engine.loading import LoadedPair
    from engine.request import CompletionRequest

GROUPS = {"other-files": frozenset(SOURCES), "shape": shape.RULES}
RULES = ("other-files", *SOURCES, "path", "shape", *sorted(shape.RULES))


@dataclass(frozen=True, slots=True)
class Score:
    """One completion against what the author wrote: the same text, and how similar, 0 to 1."""

    exact: bool
    similarity: float
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """One rule on one class of holes: the scores without it and with it, hole by hole."""

    rule: str
    kind: str
    without: Sequence[Score]
    having: Sequence[Score]

    def to_json(self) -> dict[str, Any]:
        pairs = list(zip(self.without, self.having, strict=True))
        return {
            "rule": self.rule,
            "class": self.kind,
            "holes": len(pairs),
            "without": _means(self.without),
            "with": _means(self.having),
            "better": sum(after.similarity > before.similarity for before, after in pairs),
            "worse": sum(after.similarity < before.similarity for before, after in pairs),
        }


def _means(scores: Sequence[Score]) -> dict[str, float]:
    count = len(scores)
    return {
        "exact_match": round(sum(score.exact for score in scores) / count, 4),
        "edit_similarity": round(sum(score.similarity for score in scores) / count, 4),
        "prompt_tokens": round(sum(score.prompt_tokens for score in scores) / count, 1),
    }


def evaluate(
    pair: LoadedPair,
    config: EngineConfig,
    cases: Sequence[Case],
    rules: Sequence[str],
    done: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Every rule on every class of cases. `done` is called after each case.

    A rule is compared with its absence while all others are as the server has them by default for this pair.
    """
    default = shape.RULES | {"path"} | (frozenset(SOURCES) if pair.reads_other_files else frozenset())
    members = {rule: GROUPS.get(rule, frozenset({rule})) for rule in rules}
    setups = {rule: (default - members[rule], default | members[rule]) for rule in rules}
    needed = list(dict.fromkeys(setup for both in setups.values() for setup in both))
    scores: dict[frozenset[str], list[Score]] = {setup: [] for setup in needed}
    for folder, _, hole in cases:
        texts = _Texts(pair)
        for setup in needed:
            scores[setup].append(_score(texts, request(pair, config, folder, hole, setup), hole, setup))
        done()
    return list(_rows(setups, scores, [kind for _, kind, _ in cases]))


def _rows(
    runs: dict[str, tuple[frozenset[str], frozenset[str]]],
    scores: dict[frozenset[str], list[Score]],
    kinds: Sequence[str],
) -> Iterator[Row]:
    for rule, (without, having) in runs.items():
        for kind in dict.fromkeys(kinds):
            at = [index for index, each in enumerate(kinds) if each == kind]
            yield Row(rule, kind, [scores[without][i] for i in at], [scores[having][i] for i in at])


class _Texts:
    """What the pair writes for one hole's requests, each computed once, and not ended by a rule of shape: what would
    be shown of a text is the same whether it goes on after its end or not.
    """

    def __init__(self, pair: LoadedPair) -> None:
        self._pair = pair
        self._made: dict[CompletionRequest, tuple[str, int]] = {}

    def of(self, request: CompletionRequest) -> tuple[str, int]:
        """(text, tokens of the prompt)"""
        if request not in self._made:
            self._made[request] = self._write(request)
        return self._made[request]

    def _write(self, request: CompletionRequest) -> tuple[str, int]:
        from engine.generation import generate

        text = ""
        with closing(generate(self._pair, request, self._pair.drafter())) as chunks:
            for chunk in chunks:
                text += chunk.text
        assert chunk.completion is not None
        return text, chunk.completion.prompt_tokens


def _score(texts: _Texts, asked: CompletionRequest, hole: Hole, setup: frozenset[str]) -> Score:
    """Of what the server would show. Spaces around it do not count."""
    text, prompt_tokens = texts.of(asked)
    language = shape.language_of("", hole.path)
    wanted = shape.shape_of(asked.prefix, asked.suffix, language, rules=setup & shape.RULES)
    shown, middle = wanted.shown(text, finished=True).strip(), hole.middle.strip()
    similarity = SequenceMatcher(None, shown, middle, autojunk=False).ratio()
    return Score(shown == middle, similarity, prompt_tokens)
