"""What each rule of context and shape is worth: holes in real code, completed with the rule and without it.

Takes the server's own path from a document to the text it would show; an editor's state is made up for each hole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsp_server import context, shape
from lsp_server.context.live import Wanted
from lsp_server.context.recent import Recent
from lsp_server.context.selection import select
from lsp_server.context.sources import SOURCES, Open, View, candidates
from lsp_server.context.workspace import LARGEST_FILE, Files, Workspace, local_path
from lsp_server.documents import Document, Position, split_lines
from lsp_server.settings import Settings

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.holes import Hole
    from engine.loading import LoadedPair
    from engine.request import CompletionRequest, Snippet

SUFFIXES = (".py", ".js", ".ts", ".tsx", ".mjs")
OTHER_FILES = "other-files"  # all of SOURCES
RULES = (*SOURCES, OTHER_FILES, "path", *sorted(shape.RULES))
_OPEN = 3  # other files that are open beside a hole


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
    holes: Sequence[tuple[Path, Hole]],
    rules: Sequence[str],
    done: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Every rule on every class of the holes (each with the folder it is from). `done` is called after each hole.

    A rule is compared with its absence while all others are as the server has them by default for this pair.
    """
    default = shape.RULES | {"path"} | (frozenset(SOURCES) if pair.reads_other_files else frozenset())
    setups = {rule: (default - _members(rule), default | _members(rule)) for rule in rules}
    needed = list(dict.fromkeys(setup for both in setups.values() for setup in both))
    scores: dict[frozenset[str], list[Score]] = {setup: [] for setup in needed}
    for folder, hole in holes:
        texts = _Texts(pair)
        for setup in needed:
            scores[setup].append(_score(texts, _request(pair, config, folder, hole, setup), hole, setup))
        done()
    return list(_rows(setups, scores, [hole.kind for _, hole in holes]))


def _members(rule: str) -> frozenset[str]:
    return frozenset(SOURCES) if rule == OTHER_FILES else frozenset({rule})


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


def _request(
    pair: LoadedPair, config: EngineConfig, folder: Path, hole: Hole, setup: frozenset[str]
) -> CompletionRequest:
    """What the server would ask for at the hole."""
    root = folder.absolute()
    document = Document((root / hole.path).as_uri(), "", 0, hole.prefix + hole.suffix)
    before = hole.prefix.split("\n")
    cursor = Position(len(before) - 1, len(before[-1]))
    snippets = _snippets(pair, config, root, document, cursor.line, setup)
    request = context.build(document.snapshot(cursor), [root.as_uri()], Settings(), config, snippets=snippets)
    if "path" not in setup:
        request = replace(request, path="", repository="")
    return replace(request, deadline_s=None)


def _snippets(
    pair: LoadedPair, config: EngineConfig, root: Path, document: Document, line: int, setup: frozenset[str]
) -> list[Snippet]:
    sources = frozenset(source for source in SOURCES if source in setup)
    if not sources:
        return []
    from engine.generation import prompt_room

    workspace = Workspace((root.as_uri(),))
    wanted = Wanted.within(prompt_room(pair, config.max_tokens), 8, True, workspace)
    others, recent = _editor(root, document)
    view = View(
        current=Open(document.uri, tuple(document.lines)),
        line=line,
        others=others,
        recent=recent.places,
        workspace=workspace,
        sources=sources,
        longest=wanted.longest,
    )
    return context.snippets(select((), candidates(view, Files()), wanted.most, wanted.budget))


def _editor(root: Path, document: Document) -> tuple[list[Open], Recent]:
    """Three files of the hole's folder are open, and a place in each was visited; the same for the same hole."""
    path = local_path(document.uri)
    assert path is not None
    rng = random.Random(document.text)
    near = sorted(file for file in path.parent.iterdir() if file.suffix == path.suffix and file != path)
    others = [
        Open(file.as_uri(), split_lines(text))
        for file in rng.sample(near, min(_OPEN, len(near)))
        for text in _text(file)
    ]
    recent = Recent()
    for other in others:
        recent.touched(other.uri, other.lines, rng.randrange(len(other.lines)))
    return others, recent


def _text(path: Path) -> Iterable[str]:
    if path.stat().st_size <= LARGEST_FILE:
        yield path.read_text("utf-8", errors="replace")


def _score(texts: _Texts, request: CompletionRequest, hole: Hole, setup: frozenset[str]) -> Score:
    """Of what the server would show. Spaces around it do not count."""
    text, prompt_tokens = texts.of(request)
    language = shape.language_of("", hole.path)
    wanted = shape.shape_of(request.prefix, request.suffix, language, rules=setup & shape.RULES)
    shown, middle = wanted.shown(text, finished=True).strip(), hole.middle.strip()
    similarity = SequenceMatcher(None, shown, middle, autojunk=False).ratio()
    return Score(shown == middle, similarity, prompt_tokens)
