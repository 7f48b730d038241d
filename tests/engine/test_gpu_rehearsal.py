"""The script for a GPU machine, with tiny sizes on the CPU: it runs through, and a wrong logit fails it."""

from __future__ import annotations

import json

import pytest
import torch
from gpu import check

from engine.static_runner import StaticRunner


def test_the_rehearsal_runs_through(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["run.sh", "--cpu-rehearsal"])
    assert check.main() == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["wrong"] == []
    assert len(document["bounds"]) == 9
    assert document["measured"][0]["target"] == "tiny"


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticRunner, "move_rows", lambda *_: None)
    assert list(check.check_correct(torch.device("cpu")))


def test_a_bound_that_fails_is_one() -> None:
    assert not check.Bound("x", 1.2, "<=", 1.15).holds
    assert not check.Bound("x", 1.9, ">=", 2.0).holds
    assert check.Bound("x", 2.0, ">=", 2.0).holds
