"""`specter evaluate` on the embedded pair: the numbers, the path they come by, and users' mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.generation import generate
from engine.holes import Hole, cut
from engine.loading import LoadedPair, load
from lsp_server import context
from lsp_server.cli import main
from lsp_server.evaluation.cases import SUFFIXES, cases, request
from lsp_server.evaluation.rules import RULES, Row, Score, evaluate
from lsp_server.settings import Settings

SHOP = '''\
def load_basket(customer, day):
    """The basket of that day."""
    basket = customer.baskets.get(day)
    if basket is None:
        basket = customer.open_basket(day)
        customer.baskets[day] = basket
    return basket
'''
PAY = """\
from shop import load_basket


def pay(customer, day):
    basket = load_basket(customer, day)
    total = sum(item.price for item in basket.items)
    customer.charge(total)
    basket.items.clear()
    return total
"""
CONFIG = EngineConfig(device="cpu", max_tokens=16)


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return load(CONFIG)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pay.py").write_text(PAY)
    return tmp_path


def holes(project: Path) -> list[Hole]:
    return cut(project, 4, 1, SUFFIXES)


def test_brackets_that_an_editor_closed_make_a_case_of_their_own() -> None:
    line = Hole("a.py", "line", "f(", "a, g(b)):", "\nrest")
    found = list(cases(Path("w"), [line, replace(line, middle="a,"), replace(line, kind="block")]))
    assert [case.kind for case in found] == ["line", "inside", "line", "block"]
    assert (found[1].hole.middle, found[1].hole.suffix) == ("a, g(b", ")):\nrest")


def test_what_is_scored_is_what_the_server_shows(pair: LoadedPair, project: Path) -> None:
    """A text that rules of shape end while it is decoded, as in the server, gives the same scores. Seen to fail with
    the text taken as it is."""
    closed = Hole("closed.py", "line", "foo(lambda: ", "1", ")\n")  # the model closes the bracket once more
    made = [*cases(project, holes(project)), *cases(project, [closed])]
    (row, *rest) = evaluate(pair, CONFIG, made, ["shape"])
    scores = [score for each in (row, *rest) for score in each.having]
    by_kind = [case for kind in dict.fromkeys(case.kind for case in made) for case in made if case.kind == kind]
    for case, score in zip(by_kind, scores, strict=True):
        asked = request(pair, CONFIG, project, case.hole, frozenset({"path"}))
        wanted = context.shape(asked, "", Settings())
        asked = context.ending(asked, wanted)
        text = "".join(chunk.text for chunk in generate(pair, asked, pair.drafter()))
        shown, middle = wanted.shown(text, finished=True).strip(), case.hole.middle.strip()
        assert score.exact == (shown == middle)
        assert score.similarity == SequenceMatcher(None, shown, middle, autojunk=False).ratio()


def test_a_rule_of_context_is_in_the_request_or_not(pair: LoadedPair, project: Path) -> None:
    hole = Hole("pay.py", "line", PAY[: PAY.index("customer, day)\n    total")], "customer, day)", "\n")
    plain = request(pair, CONFIG, project, hole, frozenset())
    assert (plain.path, plain.repository, plain.snippets) == ("", "", ())
    full = request(pair, CONFIG, project, hole, frozenset({"path", "definitions"}))
    assert (full.path, full.repository) == ("pay.py", project.name)
    assert [snippet.path for snippet in full.snippets] == ["shop.py"]
    assert "def load_basket(customer, day):" in full.snippets[0].text
    assert full == request(pair, CONFIG, project, hole, frozenset({"path", "definitions"}))
    visited = request(pair, CONFIG, project, hole, frozenset({"recent"}))
    assert [snippet.path for snippet in visited.snippets] == ["shop.py"]


def test_both_sides_of_a_rule_are_measured(pair: LoadedPair, project: Path) -> None:
    rows = evaluate(pair, CONFIG, list(cases(project, holes(project))), ["path", "definitions"])
    by_place = {(row.rule, row.kind): row for row in rows}
    assert len(by_place) == len(rows) >= 4
    for (rule, kind), row in by_place.items():
        if rule == "path":
            both = zip(row.without, row.having, strict=True)
            assert all(bare.prompt_tokens < full.prompt_tokens for bare, full in both)
            # The embedded pair is not shown other files by default.
            assert by_place["definitions", kind].without == row.having


def test_means_and_changes() -> None:
    before = [Score(False, 0.5, 10), Score(True, 1.0, 20), Score(False, 0.25, 30)]
    after = [Score(True, 1.0, 11), Score(False, 0.5, 21), Score(False, 0.25, 31)]
    assert Row("path", "line", before, after).to_json() == {
        "rule": "path",
        "class": "line",
        "holes": 3,
        "without": {"exact_match": 0.3333, "edit_similarity": 0.5833, "prompt_tokens": 20.0},
        "with": {"exact_match": 0.3333, "edit_similarity": 0.5833, "prompt_tokens": 21.0},
        "better": 1,
        "worse": 1,
    }


@pytest.fixture
def loaded(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.commands.evaluate.load_pair", lambda config: pair)


@pytest.mark.usefixtures("loaded")
def test_a_table_and_the_same_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", str(project), "--holes", "2", "--rules", "path,line_end", "--max-tokens", "8"]
    assert main(arguments) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("| rule | holes |")
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["pair"] == "embedded"
    assert {row["rule"] for row in document["rules"]} == {"path", "line_end"}
    assert len(document["rules"]) == len(table) - 2
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == [row["rule"] for row in document["rules"]]


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["nowhere"], "nowhere is no folder; give the folder of a project's source files"),
        (["."], "name a folder with more .py"),
        ([".", "--holes", "1"], "--holes 1 is too few; use 2 or more"),
        ([".", "--rules", "pth"], f"--rules: 'pth' is no rule; use some of {','.join(RULES)}"),
        ([".", "--rules", ","], "is no rule"),
        ([], "see `specter evaluate --help`"),
    ],
)
def test_mistakes_are_one_line_with_the_fix(
    arguments: list[str], fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *arguments]) == 2
    err = capsys.readouterr().err
    assert fix in err
    assert err.count("\n") == 1
