from __future__ import annotations

from lsp_server.feedback import Feedback


def test_each_fate_counts_once_and_strangers_do_not() -> None:
    feedback = Feedback()
    feedback.offered("1", "python", "model")
    for _ in range(2):
        feedback.shown("1")
        feedback.partly_accepted("1")
        feedback.accepted("1")
        feedback.rejected("1")
        feedback.accepted("unknown")
        feedback.shown("unknown")
    counts = {"shown": 1, "accepted": 1, "partlyAccepted": 1, "rejected": 0, "ignored": 0}
    assert feedback.to_json() == {**counts, "byLanguage": {"python": counts}, "byDrafter": {"model": counts}}


def test_what_leaves_the_screen_undecided_was_ignored() -> None:
    feedback = Feedback()
    for id_ in "123":
        feedback.offered(id_, "python", "lookup")
    feedback.shown("1")
    feedback.shown("2")
    feedback.rejected("2")
    feedback.shown("3")
    assert (feedback.to_json()["ignored"], feedback.to_json()["rejected"]) == (1, 1)


def test_old_suggestions_are_forgotten() -> None:
    feedback = Feedback()
    for number in range(2000):
        feedback.offered(str(number), "python", "model")
    feedback.accepted("0")
    feedback.accepted("1999")
    assert feedback.to_json()["accepted"] == 1
    assert len(feedback._offers) <= 512
