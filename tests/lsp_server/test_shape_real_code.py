"""The rules against real code: what its author wrote at a cursor is, nearly always, what is kept of it.

The holes are cut by tree-sitter's statements and by pauses within lines. Seen to fail with a rule that ends every text
at its first blank line, and with brackets counted in strings.
"""

from __future__ import annotations

import argparse
import ast
import calendar
import difflib
import inspect
import itertools
import random
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree_sitter import Node
from tree_sitter_language_pack import get_parser

from lsp_server.shape import Language, language_of, shape_of

ROOT = Path(__file__).parents[2]
SOURCES = {
    "python": [inspect.getsource(module) for module in (argparse, ast, calendar, difflib, inspect, shlex, textwrap)],
    "typescript": [path.read_text() for path in sorted((ROOT / "editors/vscode/src").glob("*.ts"))],
}
PER_FILE = 25


def statements(source: str, language: Language, rng: random.Random) -> Iterator[tuple[int, int]]:
    """Spans (code points) of one or two neighbours in a block, that fill their lines."""
    text = source.encode()
    nodes = [get_parser(language.grammar).parse(text).root_node]  # type: ignore[arg-type]
    spans = list[tuple[int, int]]()
    while nodes:
        node = nodes.pop()
        nodes += node.named_children
        if node.type in ("block", "module", "program", "statement_block", "class_body"):
            spans += list(neighbours(node, text))
    for start, end in rng.sample(spans, min(len(spans), PER_FILE)):
        yield len(text[:start].decode()), len(text[:end].decode())


def neighbours(block: Node, text: bytes) -> Iterator[tuple[int, int]]:
    children = [child for child in block.named_children if child.type != "comment"]
    for first, last in [*zip(children, children, strict=True), *itertools.pairwise(children)]:
        span = text[first.start_byte : last.end_byte]
        before = text[: first.start_byte].rpartition(b"\n")[2]
        after = text[last.end_byte :].partition(b"\n")[0]
        if not before.strip() and not after.strip(b" ;") and span.count(b"\n") < 12 and b"\n\n" not in span:
            yield first.start_byte, last.end_byte + len(after)


def pauses(source: str, rng: random.Random) -> Iterator[tuple[int, int]]:
    """Spans from a pause within a line to its end."""
    at = 0
    spans = []
    for line in source.splitlines(keepends=True):
        places = [place for place, char in enumerate(line) if char in " .(,=[" and line[:place].strip()]
        spans += [(at + rng.choice(places) + 1, at + len(line.rstrip()))] if places else []
        at += len(line)
    return iter(rng.sample(spans, min(len(spans), PER_FILE)))


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_the_right_text_is_kept_and_ends_where_it_should(language: str) -> None:
    rng, known = random.Random(7), language_of(language)
    counts = Counter[str]()
    for source in SOURCES[language]:
        for start, end in [*statements(source, known, rng), *pauses(source, rng)]:
            prefix, middle, suffix = source[:start], source[start:end], source[end:]
            if not middle.strip():
                continue
            shape = shape_of(prefix, suffix, known)
            counts["holes"] += 1
            counts["kept"] += shape.shown(middle, finished=True).rstrip() == middle.rstrip()
            more = middle + suffix[:1000]  # a model that goes on as the document does
            counts["ended"] += shape.shown(more, finished=False).rstrip() == middle.rstrip()
    assert counts["holes"] > 200
    assert counts["kept"] >= 0.97 * counts["holes"], counts
    assert counts["ended"] >= 0.90 * counts["holes"], counts
