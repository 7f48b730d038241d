"""The script for a GPU machine, with tiny sizes on the CPU: it runs through, and a wrong logit fails it."""

from __future__ import annotations

import json

import pytest
import torch
from gpu import check

from engine import judging, speculation
from engine.bench import shapes
from engine.drafters.small_model import SmallModelDrafter
from engine.static_runner import StaticRunner


def test_the_rehearsal_runs_through(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["run.sh", "--cpu-rehearsal"])
    assert check.main() == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["wrong"] == []
    assert len(document["bounds"]) == 10
    assert document["measured"][0]["target"] == "tiny"
    assert document["measured"][0]["waits_in_a_cycle"] == 1


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticRunner, "move_rows", lambda *_: None)
    assert list(check.check_correct(torch.device("cpu")))


def test_a_second_wait_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a drafter that looks at what it guessed. Seen to fail: only the copies of `verify` counted."""
    propose = SmallModelDrafter.propose

    def look(drafter, context, limit):
        draft = propose(drafter, context, limit)
        assert not draft or draft.tokens[0] >= 0
        return draft

    monkeypatch.setattr(SmallModelDrafter, "propose", look)
    assert check.most_waits(("tiny", "tiny-draft"), torch.device("cpu"), torch.float32) == 2


def test_a_wrong_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses taken for true show in every length, and plain decoding, which has none, stays right."""
    ask = judging.ask
    monkeypatch.setattr(speculation, "ask", lambda p, tokens, *rest: ask(p, tokens, *rest)._replace(drawn=[*tokens, 0]))
    model = shapes._random_model(shapes.SHAPES["tiny"], 512, torch.device("cpu"), torch.float32)
    wrong = list(check.check_text(model))
    assert "greedy text of 8 guesses, recorded" in wrong
    assert "greedy text of 0 guesses, eagerly" not in wrong


def test_a_bound_that_fails_is_one() -> None:
    assert not check.Bound("x", 1.2, "<=", 1.15).holds
    assert not check.Bound("x", 1.9, ">=", 2.0).holds
    assert check.Bound("x", 2.0, ">=", 2.0).holds
