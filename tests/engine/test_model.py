"""CachedModel: whatever happened before, logits and cached rows are those of a fresh model."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tiny import ATTENTION_SPAN, WINDOW, tiny_model
from torch import Tensor
from toys import TableRunner

from engine.fast_llama import FastLlamaRunner
from engine.model import CachedModel
from engine.prefix_store import PrefixStore, _nodes
from engine.request import GREEDY
from engine.runners import Rows, Runner
from engine.speculation import Draft
from engine.static_runner import StaticRunner
from engine.transformers_runner import TransformersRunner

VOCABULARY = 48
TOLERANCE = 1e-4
BUDGET = 60_000  # bytes; 117 rows of a tiny model, so that documents come and go


def runner_over(kind: str) -> Runner:
    if kind == "fast":
        model = tiny_model("llama")
        return FastLlamaRunner(model.config, model.state_dict())
    if kind.startswith("static "):
        return StaticRunner(tiny_model(kind.removeprefix("static ")), least=16)  # grows, and looks at more and more
    return TransformersRunner(tiny_model(kind))


def cached_rows(runner: Runner, count: int) -> list[Tensor]:
    """The keys and values of the first `count` rows of each layer; looks inside, as only this test may."""
    if isinstance(runner, FastLlamaRunner | StaticRunner):
        return list(runner._rows[..., :count, :])
    assert isinstance(runner, TransformersRunner)
    return [torch.stack([rows.keys, rows.values])[..., :count, :] for rows in runner._rows]


def assert_close(ours: Tensor, fresh: Tensor) -> None:
    assert (ours - fresh).abs().max() < TOLERANCE


class InterruptedForwardError(Exception):
    """What a fault in the middle of a forward raises."""


def break_next_forward(runner: Runner) -> None:
    """Makes the second layer of the next forward raise: the first has overwritten its rows by then."""
    if isinstance(runner, FastLlamaRunner):
        attend = runner._attend
        layers = iter(range(2))

        def failing(*arguments):
            if next(layers) == 0:
                return attend(*arguments)
            del runner._attend
            raise InterruptedForwardError

        runner._attend = failing
    elif isinstance(runner, StaticRunner):
        first, second = runner._joined.layers

        def failing(hidden):
            runner._joined = dataclasses.replace(runner._joined, layers=(first, second))
            raise InterruptedForwardError

        broken = dataclasses.replace(second, attention_norm=failing)
        runner._joined = dataclasses.replace(runner._joined, layers=(first, broken))
    else:
        assert isinstance(runner, TransformersRunner)
        second = runner._rows[1]

        def failing(*arguments, **options):
            del second.update
            raise InterruptedForwardError

        second.update = failing


token = st.integers(0, VOCABULARY - 1)
some = st.lists(token, min_size=1, max_size=6)


class Editing(RuleBasedStateMachine):
    """A model under an editor: drafts come true or not, requests are left, documents change, forwards fail."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.store = PrefixStore(BUDGET)
        self.model = CachedModel(runner_over(self.kind), VOCABULARY, self.store.shelf())
        self.text = [1, 2, 3]
        self.documents: list[list[int]] = []
        self.called = False

    def fresh(self, tokens: list[int], tail: int) -> Tensor:
        return runner_over(self.kind).forward(tokens, 0, tail)

    def complete(self, guesses: Draft) -> None:
        """A verify forward, every row of which is compared with a forward over that row's own past alone."""
        if len(self.text) + len(guesses) > WINDOW:
            self.text = self.text[:20]
        ours = self.model.logits(self.text, guesses=guesses)
        self.called = True
        assert_close(ours[:1], self.fresh(self.text, 1))
        for node in range(len(guesses)):
            path = [node]
            while (parent := guesses.parents[path[0]]) >= 0:
                path.insert(0, parent)
            assert_close(ours[1 + node], self.fresh([*self.text, *(guesses.tokens[each] for each in path)], 1)[0])

    @rule(guesses=some, accepted=st.integers(0, 6), following=token)
    def draft_chain(self, guesses: list[int], accepted: int, following: int) -> None:
        self.complete(Draft.chain(guesses))
        self.text += [*guesses[:accepted], following]

    @rule(data=st.data(), following=token)
    def draft_tree(self, data: st.DataObject, following: int) -> None:
        if not self.model.runner.takes_trees:
            return
        tokens = tuple(data.draw(some))
        parents = tuple(data.draw(st.integers(-1, index - 1)) for index in range(len(tokens)))
        self.complete(Draft(tokens, parents))
        node, path = data.draw(st.integers(-1, len(tokens) - 1)), list[int]()
        while node >= 0:
            path.insert(0, tokens[node])
            node = parents[node]
        self.text += [*path, following]

    @rule(count=st.sampled_from([1, 2, 3, 6]), accepted=st.integers(0, 6), following=token)
    def draw_a_chain(self, count: int, accepted: int, following: int) -> None:
        """Where the runner can, without looking: the guesses are those of forwards one after another."""
        if count != self.model.chain_length(self.text, count):
            return
        self.called = True
        guesses = self.model.chain(self.text, [0.5] * count, GREEDY).tokens
        expected = list(self.text)
        for _ in range(count):
            expected.append(int(self.fresh(expected, 1)[0, :VOCABULARY].argmax()))
        assert [*self.text, *guesses] == expected
        self.text += [*guesses[:accepted], following]

    @rule(width=st.integers(1, 12))
    def ask_for_several_rows(self, width: int) -> None:
        width = min(width, len(self.text))
        self.called = True
        assert_close(self.model.logits(self.text, tail=width), self.fresh(self.text, width))

    @rule(more=st.lists(token, min_size=10, max_size=40), chunk=st.integers(1, 9), pieces=st.integers(0, 12))
    def leave_a_prefill(self, more: list[int], chunk: int, pieces: int) -> None:
        self.text = (self.text + more)[-100:]
        prefill = self.model.prefill(self.text, chunk)
        for _ in zip(range(pieces), prefill, strict=False):
            self.called = True
        prefill.close()

    @rule(kept=st.integers(0, 100), typed=some)
    def retype(self, kept: int, typed: list[int]) -> None:
        self.text = [*self.text[:kept], *typed][-100:]

    @rule(tokens=st.lists(token, min_size=1, max_size=3 * ATTENTION_SPAN))
    def open_another_document(self, tokens: list[int]) -> None:
        self.text = tokens
        self.complete(Draft())

    @rule(data=st.data(), size=st.integers(60, 100))
    def go_to_a_long_document(self, data: st.DataObject, size: int) -> None:
        """A new one, one from before, or one that begins like it and goes on otherwise."""
        seed = data.draw(st.integers(0, 3))
        self.documents.append([(seed + place * (seed + 3)) % VOCABULARY for place in range(size)])
        text = data.draw(st.sampled_from(self.documents))
        kept = data.draw(st.integers(1, len(text)))
        self.text = data.draw(st.sampled_from([text, [*text[:kept], 5, 6, 7], text[:kept]]))
        self.complete(Draft())

    @invariant()
    def the_store_keeps_its_budget_and_counts_right(self) -> None:
        held = [node for root in self.store._roots for node in _nodes(root)]
        assert self.store.bytes == sum(node.bytes for node in held) <= BUDGET

    @rule(guesses=some)
    def fail_half_way(self, guesses: list[int]) -> None:
        if len(self.text) + len(guesses) > WINDOW or not self.called:
            return
        break_next_forward(self.model.runner)
        with pytest.raises(InterruptedForwardError):
            self.model.logits(self.text, guesses=Draft.chain(guesses))

    @invariant()
    def rows_are_those_of_a_fresh_prefill(self) -> None:
        tokens = self.model.cached
        if not tokens:
            return
        fresh = runner_over(self.kind)
        fresh.forward(tokens, 0, 1)
        for ours, theirs in zip(
            cached_rows(self.model.runner, len(tokens)), cached_rows(fresh, len(tokens)), strict=True
        ):
            assert_close(ours, theirs)


KINDS = ["fast", "llama", "qwen2", "starcoder2", "mistral", "gemma2", "static qwen2", "static starcoder2"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pure_function_of_the_tokens(kind: str) -> None:
    """Seen to fail: `rows.length = start` taken out of the runner; `cached` set after the forward instead of before;
    `shared_prefix` one too many; the tree's rows not moved; a layer that keeps the last `sliding_window` rows only; a
    static runner whose buffer starts empty when it grows.
    """
    machine = type(f"Editing{kind}", (Editing,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=14, deadline=None))


def test_a_second_request_computes_only_what_is_new() -> None:
    """Seen to fail: `shared_prefix` that compares the lengths only, and one that always says 0."""
    runner = TableRunner()
    model = CachedModel(runner, runner.table.shape[1])
    document = list(range(30))
    model.logits(document)
    model.logits([*document, 7, 8, 9])
    model.logits([*document[:20], 5, 6])
    model.logits([*document[:20], 5, 6])
    assert runner.calls == [(30, 0), (3, 30), (2, 20), (1, 21)]


@pytest.mark.parametrize(
    ("length", "chunk", "widths"),
    [
        *[(1, 4, []), (4, 4, []), (5, 4, [4]), (8, 4, [4]), (9, 4, [4, 4]), (30, 8, [8, 8, 8]), (30, 1, [1] * 29)],
        *[(24, 128, []), (25, 128, [24]), (100, 128, [99]), (300, 128, [128, 128, 43])],
    ],
)
def test_a_prefill_leaves_what_one_narrow_forward_computes(length: int, chunk: int, widths: list[int]) -> None:
    runner = TableRunner()
    model = CachedModel(runner, runner.table.shape[1])
    tokens = [token % 37 for token in range(length)]
    for _ in model.prefill(tokens, chunk):
        pass
    assert [width for width, _ in runner.calls] == widths
    torch.testing.assert_close(model.logits(tokens)[0], runner.law(tokens))


class Steps:
    """A lean runner whose first halves of layers are counted, and that fails in one of them if it is told to."""

    def __init__(self) -> None:
        self.runner = runner_over("fast")
        assert isinstance(self.runner, FastLlamaRunner)
        self.depth, self.done, self.fails_at = len(self.runner._layers), 0, -1
        look = self.runner._look

        def counted(*arguments):
            self.done += 1
            if self.done == self.fails_at:
                raise InterruptedForwardError
            return look(*arguments)

        self.runner._look = counted
        self.model = CachedModel(self.runner, VOCABULARY)

    def prefill(self, tokens: list[int], pauses: int | None = None) -> None:
        """As far as the given pause, or to the end."""
        steps = self.model.prefill(tokens, 64)
        for _ in steps if pauses is None else zip(range(pauses), steps, strict=False):
            pass
        steps.close()

    def check(self, tokens: list[int]) -> None:
        assert_close(self.model.logits(tokens), runner_over("fast").forward(tokens, 0, 1))


TEXT = [(7 * place) % VOCABULARY for place in range(60)]


@pytest.mark.parametrize("more", [[], [1, 2, 3]], ids=["the same", "typed on"])
def test_a_piece_left_half_way_is_gone_on_with(more: list[int]) -> None:
    """Seen to fail: begun anew each time."""
    steps = Steps()
    steps.prefill(TEXT, 1)
    assert steps.done == 1
    steps.prefill([*TEXT, *more])
    assert steps.done == steps.depth
    steps.check([*TEXT, *more])


@pytest.mark.parametrize(
    "between", [TEXT[:30], [*TEXT[:30], 5, 6], [4, 4, 4], [9] * 60], ids=["cut", "other end", "short", "long"]
)
def test_a_piece_is_begun_anew_when_something_else_was_computed(between: list[int]) -> None:
    """Seen to fail: `_begun` kept by `_extend`; and gone on with by a prefill of something else."""
    steps = Steps()
    steps.prefill(TEXT, 1)
    steps.prefill(between, 1)
    steps.prefill(between)
    assert steps.model.shared_prefix(between) >= len(between) - 24
    steps.check(between)
    steps.prefill(TEXT, 1)
    steps.model.logits(between)
    steps.prefill(TEXT)
    steps.check(TEXT)


def test_a_piece_that_failed_is_begun_anew() -> None:
    """Seen to fail: `_begun` kept when its steps raise."""
    steps = Steps()
    steps.fails_at = 2
    with pytest.raises(InterruptedForwardError):
        steps.prefill(TEXT)
    steps.prefill(TEXT)
    assert steps.done == 2 + steps.depth
    steps.check(TEXT)


def test_accepted_guesses_are_not_computed_again() -> None:
    """Seen to fail: `_commit_guesses` that returns 0."""
    runner = TableRunner()
    model = CachedModel(runner, runner.table.shape[1])
    model.logits([1, 2], guesses=Draft((3, 4, 5, 6), (-1, 0, 0, 2)))
    logits = model.logits([1, 2, 3, 5, 6, 9])
    assert runner.calls == [(6, 0), (1, 5)]
    torch.testing.assert_close(logits[0], runner.law([1, 2, 3, 5, 6, 9]))


def test_guesses_are_lost_if_their_rows_cannot_be_moved() -> None:
    """Half moved rows must not come true later. Seen to fail: `_guesses` emptied after the move only."""
    runner = TableRunner()
    model = CachedModel(runner, runner.table.shape[1])
    model.logits([1, 2], guesses=Draft((3, 4), (-1, -1)))
    move_rows, runner.move_rows = runner.move_rows, lambda sources, start: (move_rows(sources, start), 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.logits([1, 2, 4, 5])
    runner.move_rows = move_rows
    torch.testing.assert_close(model.logits([1, 2, 3, 5])[0], runner.law([1, 2, 3, 5]))


def test_rows_of_a_padded_embedding_do_not_exist() -> None:
    runner = TableRunner(rows=48)
    assert CachedModel(runner, 37).logits([1, 2, 3]).shape == (1, 37)


def stored_model(budget: int) -> tuple[TableRunner, CachedModel, PrefixStore]:
    runner, store = TableRunner(), PrefixStore(budget)
    return runner, CachedModel(runner, runner.table.shape[1], store.shelf()), store


def document(seed: int, length: int = 100) -> list[int]:
    return [(seed * 7 + place * (seed + 1)) % 37 for place in range(length)]


def test_going_back_to_a_document_computes_only_what_is_new() -> None:
    """Seen to fail: `_switch` that never puts away; one that never takes out."""
    runner, model, _ = stored_model(1 << 20)
    for seed in (1, 2, 3):
        model.logits(document(seed))
    runner.calls.clear()
    for seed in (1, 2, 3):
        text = [*document(seed), 5, 6]
        assert model.shared_prefix(text[:-1]) == 100  # what a completion reports as reused
        torch.testing.assert_close(model.logits(text)[0], runner.law(text))
    assert runner.calls == [(2, 100)] * 3


def test_the_least_recently_used_document_goes_first() -> None:
    """Seen to fail: `rows` that does not renew `used`; eviction of the newest."""
    runner, model, store = stored_model(2 * 100 * 8 + 8)
    for seed in (1, 2, 1, 3, 4):  # put away: 1, 2, 1 again, 3
        model.logits(document(seed))
    runner.calls.clear()
    assert store.bytes == 2 * 100 * 8
    assert [model.shelf.match(document(seed)) for seed in (1, 2, 3)] == [100, 0, 100]


def test_documents_that_begin_alike_share_their_rows() -> None:
    """Seen to fail: `put` that always begins at the root."""
    _, model, store = stored_model(1 << 20)
    header = document(1, 60)
    for seed in (2, 3, 4):
        model.logits([*header, *document(seed)])
    model.logits(document(5))
    assert store.bytes == (60 + 3 * 100) * 8


def test_typing_on_puts_nothing_away() -> None:
    """A keystroke in the middle of a prompt loses what is behind it: no document, and not worth a copy each time."""
    _, model, store = stored_model(1 << 20)
    for typed in range(20):
        model.logits([*document(1, 60), *range(typed), *document(2, 40)])
    assert store.bytes == 0


def test_a_copy_that_fails_half_way_leaves_nothing_wrong() -> None:
    """Seen to fail: `cached` set before the copies."""
    runner, model, _ = stored_model(1 << 20)
    for seed in (1, 2):
        model.logits(document(seed))
    write = runner.write_rows

    def failing(rows: Rows, start: int) -> None:
        write((rows[0][:50],), start)
        runner.write_rows = write
        raise MemoryError

    runner.write_rows = failing
    with pytest.raises(MemoryError):
        model.logits([*document(1), 4])
    for seed in (1, 2):
        torch.testing.assert_close(model.logits([*document(seed), 4])[0], runner.law([*document(seed), 4]))


def test_forgetting_empties_the_shelf() -> None:
    _, model, store = stored_model(1 << 20)
    for seed in (1, 2):
        model.logits(document(seed))
    assert store.bytes
    model.forget()
    assert store.bytes == 0
    assert model.shared_prefix(document(1)) == 0
