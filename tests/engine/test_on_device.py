"""What is decided on a device: the same tokens as on the host, and one wait a cycle."""

from __future__ import annotations

import copy
import math
from collections import Counter
from itertools import takewhile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import some_tokens, tiny_model
from torch.overrides import TorchFunctionMode

from engine import on_device, sampling, speculation
from engine.costs import Costs
from engine.decoder import SpeculativeDecoder, Step
from engine.drafters import Drafter
from engine.drafters.lookup import LookupDrafter
from engine.drafters.merged import MergedDrafter
from engine.drafters.small_model import SmallModelDrafter
from engine.drafters.surroundings import Markers
from engine.model import CachedModel
from engine.on_device import Behind, Guessed
from engine.policy import DraftPolicy
from engine.request import GREEDY, Sampling
from engine.runners import WrappedRunner
from engine.sampling import Noise, draw, draw_rows, warp
from engine.speculation import Draft, verify
from engine.static_runner import StaticRunner

VOCAB = 48
SAMPLED = Sampling("sampled", temperature=1.2, top_p=0.95)
PROMPT = some_tokens(20, VOCAB)
WAITS = {"__bool__", "__int__", "__float__", "__index__", "item", "tolist", "cpu", "numpy", "nonzero", "equal"}


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where looking at a number means waiting."""
    for module in (sampling, speculation):
        monkeypatch.setattr(module, "is_near", lambda values: False)


class Waits(TorchFunctionMode):
    """Counts what would wait for a GPU."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in WAITS:
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))


weights = st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.1, 0.3, 1.0, 7.0]), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), start=weights, size=st.sampled_from([1, 40, 511, 512, 513, 1600]), rows=st.integers(1, 3))
def test_rows_are_drawn_as_one_is(data: st.DataObject, start: list[float], size: int, rows: int) -> None:
    """At both ends (1.0 is where rounding may take a uniform below it), over runs that have no weight.

    Seen to fail: a token behind the last weight; `before` of the wrong run.
    """
    shift = data.draw(st.integers(0, size - 1))
    law = torch.zeros(size)
    law[: len(start)] = torch.tensor(start)[:size]
    law = law.roll(shift)
    law[data.draw(st.integers(0, size - 1))] += 0.5
    uniforms = data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]), min_size=rows, max_size=rows))
    drawn = draw_rows(law.expand(rows, size), torch.tensor(uniforms, dtype=torch.float64)).tolist()
    assert all(law[token] > 0 for token in drawn)
    assert drawn == [draw(law, uniform) for uniform in uniforms]


def later(draft: Draft, vocab: int) -> Draft:
    """The same draft, as a device guessed it."""
    guessed = Guessed(torch.tensor(draft.tokens, dtype=torch.int64), torch.full((len(draft),), 0.5), vocab)
    return Draft(guessed.tokens, draft.parents, draft.probs, guessed.confidences)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**31), greedy=st.booleans())
def test_asking_for_all_at_once_changes_no_verdict(data: st.DataObject, seed: int, greedy: bool) -> None:
    """Chains with laws, without, and mixed; trees of certain guesses; ids that are no tokens.

    Seen to fail: ≤ in place of <; the noise of the row in place of the depth; p in place of the
    residual; an id outside the vocabulary accepted.
    """
    vocab, count = 6, data.draw(st.integers(1, 6))
    random = torch.Generator().manual_seed(seed)
    p = warp(3 * torch.randn(count + 1, vocab, generator=random), GREEDY if greedy else SAMPLED)
    tokens = tuple(data.draw(st.lists(st.integers(-1, vocab), min_size=count, max_size=count)))
    chain = tuple(range(-1, count - 1))
    if data.draw(st.booleans()):
        q = warp(3 * torch.randn(count, vocab, generator=random), SAMPLED)
        q[data.draw(st.lists(st.booleans(), min_size=count, max_size=count))] = 0.0
        draft = Draft(tokens, chain, q)
    else:
        draft = Draft(tokens, tuple(data.draw(st.integers(-1, index - 1)) for index in range(count)))
    noise, position = Noise(seed), data.draw(st.integers(0, 70))
    assert verify(p, later(draft, vocab), noise, position) == verify(p, draft, noise, position)


def runner(noise: float = 0.0) -> StaticRunner:
    """With some noise, the model is right often enough to draft for the one without."""
    model, random = copy.deepcopy(tiny_model("qwen2")), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=random)
    return StaticRunner(model, 32)


def model_drafter(away: bool, ends: frozenset[int] = frozenset()) -> SmallModelDrafter:
    draft = runner(0.02)
    return SmallModelDrafter(CachedModel(draft if away else WrappedRunner(draft), VOCAB), ends)


def decode(drafter: Drafter | None, length: int, how: Sampling, seed: int = 5, end: int = 99, **options) -> list[Step]:
    target = CachedModel(runner(), VOCAB)
    decoder = SpeculativeDecoder(target, drafter, how, Noise(seed), frozenset({end}), length, **options)
    return list(decoder.decode(PROMPT, 40))


def text(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def of(steps: list[Step]) -> list[tuple]:
    return [(step.tokens, step.drafted, step.accepted, step.judged) for step in steps]


@pytest.mark.parametrize("how", [GREEDY, SAMPLED, Sampling("sampled", top_k=5, min_p=0.01)], ids=["greedy", "p", "k"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 6, 8])
def test_chains_drawn_on_a_device_are_those_of_the_host(length: int, how: Sampling) -> None:
    """Cycle for cycle, with the same numbers, until there is too little room left for some lengths.

    Seen to fail: the noise of the position before.
    """
    for seed in range(3):
        ours, theirs = (of(decode(model_drafter(away), length, how, seed)) for away in (True, False))
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
        assert sum(len(tokens) for tokens, *_ in ours[:alike]) > 40 - 9
        assert any(accepted for _, _, accepted, _ in ours)


def test_a_policy_learns_what_chains_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: their time taken for that of the target's forward."""
    costs, together = Costs([1 + 0.01 * more for more in range(9)], 0.1), []
    monkeypatch.setattr(Costs, "took_together", lambda self, *took: together.append(took))
    steps = decode(model_drafter(True), 4, GREEDY, policy=DraftPolicy(costs))
    chains = [step for step in steps if step.drafted][1:]
    assert [(width, forwards) for width, _, forwards in together] == [
        (step.drafted + 1, step.drafted) for step in chains
    ]
    assert [ms for _, ms, _ in together] == pytest.approx([step.draft_ms + step.verify_ms for step in chains])


def test_what_was_recorded_is_of_one_way_to_sample() -> None:
    """Seen to fail: one recording for all."""
    drafter = model_drafter(True)
    for _ in range(2):
        for how in (GREEDY, SAMPLED, Sampling("sampled", temperature=0.3)):
            assert of(decode(drafter, 4, how)) == of(decode(model_drafter(True), 4, how))


@pytest.mark.parametrize("how", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_chain_goes_on_behind_an_end_and_the_text_does_not(how: Sampling) -> None:
    for length in (2, 4, 8):
        plain = text(decode(model_drafter(True), length, how))
        end = plain[13]
        ours, theirs = (
            text(decode(model_drafter(away, frozenset({end})), length, how, end=end)) for away in (True, False)
        )
        assert ours == theirs == plain[: plain.index(end) + 1]


def test_limits_between_the_recorded_lengths_take_the_one_below() -> None:
    steps = decode(model_drafter(True), 7, GREEDY)
    assert {step.drafted for step in steps if step.forwards} <= {0, 1, 2, 3, 4, 6}
    assert steps[1].drafted == 6


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("how", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["model", "model with a policy", "lookup", "merged", "plain"])
def test_a_cycle_waits_once(kind: str, how: Sampling) -> None:
    """Seen to fail: laws looked at before the target's forward; the draft's confidences fetched by themselves; a guess
    looked at to see whether it has an embedding."""
    markers = Markers(frozenset(), 0)
    drafter: Drafter | None = {
        "model": model_drafter(True),
        "model with a policy": model_drafter(True),
        "lookup": LookupDrafter(markers),
        "merged": MergedDrafter(LookupDrafter(markers), None, model_drafter(True)),
        "plain": None,
    }[kind]
    policy = DraftPolicy(Costs([1 + 0.01 * more for more in range(9)], 0.1)) if "policy" in kind else None
    target = CachedModel(runner(), VOCAB)
    decoder = SpeculativeDecoder(target, drafter, how, Noise(3), frozenset(), 4, policy)
    # Nothing in it is repeated, so the merged drafter finds nothing that would be worth a second wait.
    steps = decoder.decode(list(range(20)), 12)
    while True:
        with Waits() as waits:
            step = next(steps, None)
        if step is None:
            break
        if step.forwards and (kind != "merged" or step.drafted == 4):
            assert waits.counts == {"tolist": 1}


@pytest.mark.usefixtures("far")
def test_a_chain_among_what_is_looked_up_keeps_the_text_and_the_tree() -> None:
    """Where something is found the chain is looked at, and both are judged. Seen to fail: the chain alone returned."""
    plain = text(decode(None, 0, GREEDY))
    # What will be said stands in the recent texts, so it is found, and the model guesses otherwise now and then.
    lookup = LookupDrafter(Markers(frozenset(), 0), ([*PROMPT[-8:], *plain[:30]],))
    model = model_drafter(True)
    steps = decode(MergedDrafter(lookup, None, model), 8, GREEDY)
    assert text(steps) == plain
    alone = decode(model_drafter(True), 6, GREEDY)
    assert len(steps) < len(alone)


@pytest.mark.usefixtures("far")
def test_a_flat_nucleus_is_found_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that few candidates do not hold. Seen to fail: the guess of a few, looked at."""
    logits = torch.randn(3, 400, generator=torch.Generator().manual_seed(0))
    with Waits() as waits:
        ours = warp(logits, Sampling("sampled", top_p=0.97, top_k=300))
    assert not waits.counts
    monkeypatch.undo()
    torch.testing.assert_close(ours, warp(logits, Sampling("sampled", top_p=0.97, top_k=300)), atol=1e-7, rtol=0)


@pytest.mark.usefixtures("far")
def test_a_target_whose_logits_are_no_numbers_is_told_from_one_that_is_sure() -> None:
    p = warp(torch.tensor([[1.0, 2.0], [math.nan, 0.0]]), GREEDY)
    with pytest.raises(FloatingPointError, match="not finite"):
        verify(p, Draft.chain([1]), Noise(0), 0)
    with pytest.raises(FloatingPointError, match="not finite"):
        verify(warp(torch.full((3, 4), math.inf), SAMPLED), Draft((1, 2), (-1, -1), torch.ones(2, 4)), Noise(0), 0)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("how", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_whose_logits_are_no_numbers_is_left_out(how: Sampling) -> None:
    """After the cycle that found it, in which the target's own token came out. Seen to fail: not looked at."""
    drafter = model_drafter(True)
    runner = drafter._model.runner
    assert isinstance(runner, StaticRunner)
    runner._joined.norm.weight.fill_(math.nan)
    steps = decode(drafter, 3, how)
    assert [step.fault for step in steps if step.fault] == [
        "drafter model failed and was left out (FloatingPointError)"
    ]
    if how is GREEDY:
        assert text(steps) == text(decode(None, 0, how))


def test_looking_at_one_number_fetches_all_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    monkeypatch.setattr(on_device, "to_host", lambda values: fetched.append(len(values)) or values.tolist())
    guessed = Guessed(torch.tensor([5, 6, 7]), torch.tensor([0.5, 0.25, 1.0]), 8)
    assert (len(guessed.tokens), len(guessed.confidences[:2])) == (3, 2)
    assert fetched == []
    assert list(Behind([1, 2], guessed.tokens)) == [1, 2, 5, 6, 7]
    assert list(guessed.confidences[1:]) == [0.25, 1.0]
    assert guessed.tokens[:2].there.tolist() == [5, 6]
    assert fetched == [6]


def test_verdicts_tell_what_was_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is fetched after a verdict. Seen to fail: `tell` left out; a slice that begins one too late."""
    draft = later(Draft.chain([3, 1, 2]), 4)
    verify(warp(torch.zeros(4, 4), GREEDY), draft, Noise(0), 0)
    monkeypatch.setattr(on_device, "to_host", lambda values: pytest.fail("fetched again"))
    assert (list(draft.tokens), list(draft.confidences)) == ([3, 1, 2], [0.5, 0.5, 0.5])
