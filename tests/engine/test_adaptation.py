"""Online adaptation on the embedded pair: it learns, refuses what is worse, gives way, and changes no output's law."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from toys import VOCABULARY, TableRunner, toy_pair

from engine.adaptation import Learner, Outcome, embedded_pair, lessons, store
from engine.adaptation.learner import _better
from engine.adaptation.lessons import Lessons
from engine.adaptation.llama import Llama
from engine.adaptation.store import Store
from engine.config import EngineConfig
from engine.decoder import SpeculativeDecoder
from engine.drafters.small_model import SmallModelDrafter
from engine.embedded import Int8Weight, export, shape, stored_weights, weights
from engine.generation import generate
from engine.loading import LoadedPair, load
from engine.model import CachedModel
from engine.request import GREEDY, CompletionRequest, Sampling
from engine.sampling import Noise
from lsp_server.cli import main

NAMES = [
    *("width", "height", "depth", "price", "amount", "weight", "volume", "count", "rate", "delay", "offset", "margin"),
    *("length", "radius", "angle", "score", "level", "index", "limit", "total", "speed", "power", "phase", "ratio"),
    *("value", "cost", "mass", "gain", "bias", "step"),
]


def idiom(name: str) -> str:
    return (
        f"@zcheck(unit='{name}')\ndef zget_{name}(zctx):\n    zctx.ztouch('{name}')\n"
        f"    return zctx.zfetch('{name}', zdefault=None)\n\n\n"
    )


def request(name: str, sampling: Sampling = GREEDY) -> CompletionRequest:
    """The body of another function of a file that repeats an idiom nobody else has."""
    prefix = idiom("first") + idiom("second") + idiom(name).split("zctx.ztouch")[0]
    return CompletionRequest(prefix, "\n", "z.py", max_tokens=32, sampling=sampling)


def complete(pair: LoadedPair, asked: CompletionRequest, plain: bool = False):
    *_, last = generate(pair, asked, None if plain else pair.drafter(asked), draft_length=3)
    return last.completion


def live(learner: Learner) -> dict[str, torch.Tensor]:
    return {
        name: (weight.rows if isinstance(weight, Int8Weight) else weight).clone()
        for name, weight in learner._live.items()
    }


@dataclass
class Taught:
    pair: LoadedPair
    outcomes: list[Outcome]
    accepted: tuple[int, int]  # of the same completions, before and after
    cached: list[int]  # of the draft, right after it learned
    folder: Path


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taught]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data") / "adaptation"
        patch.setattr(store, "folder", lambda: folder)
        pair = replace(load(EngineConfig(device="cpu", adaptation=True)), drafter_name="model")
        assert pair.learner is not None
        asked = [request(name) for name in NAMES[-3:]]
        unwatched = replace(pair, learner=None)
        before = sum(complete(unwatched, one).accepted for one in asked)
        for name in NAMES[:-3]:
            complete(pair, request(name))
        while pair.learner.step():
            pass
        cached = list(pair.draft.cached)
        after = sum(complete(unwatched, one).accepted for one in asked)
        yield Taught(pair, list(pair.learner.outcomes), (before, after), cached, folder)


def test_a_context_that_repeats_itself_is_learned(taught: Taught) -> None:
    """Seen to fail with a rate of 0, and with the cache of the draft kept when its weights change."""
    [outcome] = taught.outcomes
    assert outcome.kept
    assert outcome.after > outcome.before
    before, after = taught.accepted
    assert after > before  # of completions that it has not seen
    assert taught.cached == []  # or rows of the weights before would stay


def test_what_was_learned_is_there_the_next_time(taught: Taught) -> None:
    [path] = taught.folder.iterdir()
    assert path.stat().st_mode & 0o077 == 0
    again = load(EngineConfig(device="cpu", adaptation=True))
    ours, theirs = live(taught.pair.learner), live(again.learner)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    shipped = live(load_learner())
    assert any(not torch.equal(ours[name], shipped[name]) for name in ours)
    tokens = list(range(100, 140))
    assert torch.equal(taught.pair.draft.logits(tokens), again.draft.logits(tokens))


def load_learner() -> Learner:
    return Learner(shape("draft"), stored_weights("draft"), lambda *_: None)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling("sampled", 0.7, seed=3)], ids=["greedy", "drawn"])
def test_no_token_of_the_target_changes(taught: Taught, sampling: Sampling) -> None:
    """Greedily, and drawn from sources whose guesses are certain."""
    certain = replace(taught.pair, drafter_name="model" if sampling.greedy else "lookup")
    accepted = 0
    for name in ("alpha", "beta"):
        asked = request(name, sampling)
        guessed = complete(certain, asked)
        assert guessed.token_ids == complete(certain, asked, plain=True).token_ids
        accepted += guessed.accepted
    assert accepted > 0


def test_a_poisoned_update_is_refused(taught: Taught) -> None:
    """Lessons that say the wrong tokens, in front of a tail that says the right ones. Fails without the comparison."""
    used = []
    learner = Learner(shape("draft"), stored_weights("draft"), lambda *given: used.append(given))
    before = live(learner)
    told = taught.pair.learner.lessons.all()
    for place, lesson in enumerate(told):
        wrong = [(ids + 7) % 16000 for ids in lesson.ids] if place < 0.75 * len(told) - 1 else lesson.ids
        learner.lessons._lessons.append(replace(lesson, ids=wrong))
        learner.lessons.seen += 1
    while learner.step():
        pass
    [outcome] = learner.outcomes
    assert not outcome.kept
    assert outcome.after < outcome.before
    assert not used
    after = live(learner)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_fault_ends_the_round_and_nothing_else(taught: Taught, caplog: pytest.LogCaptureFixture) -> None:
    learner = load_learner()
    for lesson in taught.pair.learner.lessons.all():
        learner.lessons._lessons.append(replace(lesson, tokens=[99999]))
        learner.lessons.seen += 1
    steps = 0
    while learner.step():
        steps += 1
    assert 0 < steps < 5
    assert "a round of learning failed" in caplog.text
    assert not learner.outcomes


def test_chance_is_no_improvement() -> None:
    assert not _better([True, False] * 20, [True, False] * 20)
    assert not _better([False] * 2 + [True] * 40, [True] * 42)  # two, by chance
    assert _better([False] * 9 + [True] * 40, [True] * 49)
    assert not _better([False] * 20 + [True] * 20, [True] * 20 + [False] * 20)


def test_the_forward_that_learns_is_the_one_that_guesses(exact_pair: LoadedPair) -> None:
    tokens = torch.randint(16000, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = exact_pair.draft.logits(tokens, tail=5)
    learned = Llama(shape("draft")).logits(weights("draft"), tokens, 5)
    torch.testing.assert_close(learned[:, : expected.shape[-1]], expected, atol=1e-3, rtol=1e-3)


def test_lessons_are_the_laws_of_the_target_after_their_tokens() -> None:
    """Of several completions, some of them cut off. Fails with the row of a guess taken for that behind it."""
    watched, target = Lessons(), TableRunner()
    decoder = SpeculativeDecoder(
        CachedModel(target, VOCABULARY),
        SmallModelDrafter(CachedModel(target, VOCABULARY), frozenset()),
        Sampling("sampled"),
        Noise(0),
        frozenset(),
        3,
        watcher=watched,
    )
    for start, limit in ((1, 30), (2, 7), (3, 19)):
        list(decoder.decode([start, 5, 6], limit))
    told = watched.all()
    assert watched.seen == len(told) > 3
    assert sum(len(lesson.ids) for lesson in told) > 40
    for lesson in told:
        for place, (ids, probs) in enumerate(zip(*lesson.laws(), strict=True)):
            tokens = lesson.tokens[: len(lesson.tokens) - len(lesson.ids) + 1 + place]
            law = target.law(tokens).softmax(dim=-1).topk(len(ids))
            assert torch.equal(law.indices, ids)
            torch.testing.assert_close(law.values, probs, atol=1e-3, rtol=1e-2)


def test_lessons_are_bounded() -> None:
    watched, pair = Lessons(), toy_pair(draft=TableRunner(seed=3))
    decoder = SpeculativeDecoder(pair.target, None, GREEDY, Noise(0), frozenset(), 0, watcher=watched)
    for start in range(lessons._MOST // 4):
        list(decoder.decode([5 + start % 20] * 300, 100))
    told = watched.all()
    assert len(told) == lessons._MOST < watched.seen
    assert max(len(lesson.tokens) for lesson in told) < lessons._BEFORE + 2 * lessons._LAWS
    assert max(len(lesson.ids) for lesson in told) <= lessons._LAWS


class TestStore:
    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "folder", lambda: tmp_path / "adaptation")

    @pytest.fixture
    def kept(self) -> Store:
        like = stored_weights("draft")
        kept = Store(embedded_pair(), like)
        kept.write(like, Outcome(40, 20, 30, True))
        return kept

    def test_what_was_written_is_read(self, kept: Store) -> None:
        read = kept.read()
        assert read is not None
        assert all(
            torch.equal(part, other)
            for name, weight in stored_weights("draft").items()
            for part, other in zip(weight, read[name], strict=True)
        )

    @pytest.mark.parametrize(
        ("damage", "line"),
        [
            (lambda path, kept: path.write_bytes(b"nothing of ours"), "damaged"),
            (lambda path, kept: path.write_bytes(path.read_bytes()[:-100]), "damaged"),
            (lambda path, kept: Store("0" * 64, kept._like).write(kept._like, Outcome(1, 0, 1, True)), "another pair"),
            (lambda path, kept: old_version(kept), "another version of specter"),
            (lambda path, kept: Store(kept._pair, halved(kept._like)).write(halved(kept._like), OUTCOME), "not those"),
            (lambda path, kept: Store(kept._pair, broken(kept._like)).write(broken(kept._like), OUTCOME), "not those"),
        ],
        ids=["foreign", "cut", "another pair", "older", "another shape", "no numbers"],
    )
    def test_what_does_not_fit_is_ignored_with_a_line(self, kept: Store, damage, line, caplog) -> None:
        damage(kept.path, kept)
        [path] = kept.path.parent.iterdir() if line != "another pair" else [moved(kept)]
        before = path.read_bytes()
        caplog.set_level(logging.WARNING)
        assert kept.read() is None
        [record] = caplog.records
        assert line in record.message
        assert "specter adaptation --remove" in record.message
        assert "\n" not in record.message
        assert path.read_bytes() == before

    def test_a_folder_that_cannot_be_written_is_a_line(self, kept: Store, tmp_path: Path, caplog) -> None:
        kept.path.unlink()
        kept.path.parent.rmdir()
        kept.path.parent.write_text("in the way")
        kept.write(stored_weights("draft"), Outcome(1, 0, 1, True))
        [record] = caplog.records
        assert "cannot be written" in record.message

    def test_the_command_shows_and_removes(self, kept: Store, capsys) -> None:
        (kept.path.parent / "foreign.safetensors").write_bytes(b"?")
        assert main(["adaptation", "--status"]) == 0
        out = capsys.readouterr().out
        assert f"{kept.path} (5.9 MB) agreed with the target in 30 of 40 places, in 20 before" in out
        assert "not used: damaged" in out
        assert main(["adaptation", "--remove"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
        assert not list(kept.path.parent.iterdir())
        assert main(["adaptation"]) == 0
        assert "nothing has been learned" in capsys.readouterr().out


OUTCOME = Outcome(1, 0, 1, True)


def old_version(kept: Store) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FORMAT", "0")
        kept.write(kept._like, OUTCOME)


def moved(kept: Store) -> Path:
    """Another pair's file under this one's name."""
    [other] = [path for path in kept.path.parent.iterdir() if path != kept.path]
    return other.replace(kept.path)


def halved(like):
    return {
        name: Int8Weight(*(part[: len(part) // 2] for part in weight)) if isinstance(weight, Int8Weight) else weight
        for name, weight in like.items()
    }


def broken(like):
    return {name: weight if isinstance(weight, Int8Weight) else weight * torch.nan for name, weight in like.items()}


def test_other_drafts_do_not_learn(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Said once, and completions go on. Seen to fail with no line in the log."""
    export(tmp_path)
    pair = load(EngineConfig(device="cpu", draft=str(tmp_path / "draft"), adaptation=True))
    assert pair.learner is None
    assert caplog.text.count("only the embedded draft on a CPU learns") == 1
    assert complete(pair, request("alpha")).tokens > 0
