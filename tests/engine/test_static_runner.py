"""The static runner against transformers: every family, every width filled up, every bucket, trees, other documents."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import ARCHITECTURES, WINDOW, some_tokens, tiny_model, uncached_logits

from engine import checkpoints
from engine.joined import can_join
from engine.runners import Runner
from engine.static_runner import WIDTHS, StaticRunner
from engine.transformers_runner import TransformersRunner

JOINED = ["gemma", "granite", "llama", "mistral", "qwen2", "qwen3", "starcoder2"]
LEAST = 16
TOLERANCE = 1e-4


def uneven_model(architecture: str):
    """With biases and norms that do something: transformers begins with zeros and ones."""
    model = copy.deepcopy(tiny_model(architecture))
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=random)
    return model


MODELS = {architecture: uneven_model(architecture) for architecture in JOINED}
EXPECTED = {name: uncached_logits(model, some_tokens(WINDOW, 48)) for name, model in MODELS.items()}


def test_which_models_it_runs() -> None:
    """Others keep transformers' code. Seen to fail: layers of two kinds let through; angles that change."""
    assert [name for name in sorted(ARCHITECTURES) if can_join(tiny_model(name))] == JOINED
    changing, mixed = copy.deepcopy(MODELS["llama"]), copy.deepcopy(MODELS["qwen3"])
    changing.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    mixed.config.layer_types = ["full_attention", "sliding_attention"]
    assert not can_join(changing)
    assert not can_join(mixed)


@pytest.mark.parametrize("architecture", JOINED)
def test_equals_transformers_at_every_width(architecture: str) -> None:
    """The ladder's and those between, wide ones, past the sliding window, to the window's end, with guesses taken back.

    Seen to fail: no bias of q, k, v; the gate and what it multiplies exchanged; queries and keys not normed; Gemma's
    weights without their 1; a residual without Granite's factor; the span one token too long.
    """
    tokens, runner, start = some_tokens(WINDOW, 48), StaticRunner(MODELS[architecture], LEAST), 0
    for width in (40, 1, 2, 3, 4, 7, 8, 12, 17, 33):
        runner.forward([9] * min(width, WINDOW - start), start, 1)
        ours = runner.forward(tokens[start : start + width], start, width)
        theirs = EXPECTED[architecture][start : start + width]
        assert (ours - theirs).abs().max() < TOLERANCE
        start += width
    assert start == 127
    ours = runner.forward(tokens[start:], start, 1)
    assert (ours - EXPECTED[architecture][start:]).abs().max() < TOLERANCE


@pytest.mark.parametrize("architecture", JOINED)
@pytest.mark.parametrize("before", [10, 40])
def test_tree_rows_see_their_own_branch_only(architecture: str, before: int) -> None:
    """Behind new tokens few and many; with a sliding window too, which is in tokens of the branch.

    Seen to fail: siblings that see one another; positions that count nodes.
    """
    model, tokens = MODELS[architecture], some_tokens(70, 48)[: 30 + before]
    runner = StaticRunner(model, LEAST)
    guesses, parents = [5, 6, 7, 8, 9, 10, 11], [-1, 0, 0, -1, 3, 2, 2]
    branches = [[], [5], [5, 6], [5, 7], [8], [8, 9], [5, 7, 10], [5, 7, 11]]
    runner.forward(tokens[:30], 0, 1)
    ours = runner.forward([*tokens[30:], *guesses], 30, 8, parents)
    expected = torch.stack([uncached_logits(model, tokens + branch)[-1] for branch in branches])
    assert (ours - expected).abs().max() < TOLERANCE
    end = len(tokens)
    runner.move_rows([end, end + 2, end + 6], end)  # the branch 5, 7, 11
    ours = runner.forward([12], end + 3, 1)
    assert (ours - uncached_logits(model, [*tokens, 5, 7, 11, 12])[-1]).abs().max() < TOLERANCE


def test_a_sliding_window_counts_tokens_of_the_branch() -> None:
    """Guesses beside it move its rows apart, not its positions. Seen to fail: a span that counts rows."""
    model, tokens, branch = MODELS["mistral"], some_tokens(20, 48), some_tokens(12, 48, seed=3)
    runner = StaticRunner(model, LEAST)
    logits = runner.forward([*tokens, 3, 4, *branch], 0, 12, [-1, -1, -1, *range(2, 13)])
    expected = uncached_logits(model, [*tokens, *branch])[-12:]
    assert (logits - expected).abs().max() < TOLERANCE


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(1, WINDOW - 1),
    count=st.integers(1, WINDOW),
    least=st.sampled_from([1, 16, 64, 500]),
    rubbish=st.integers(0, 47),
)
def test_neither_width_nor_bucket_shows(start: int, count: int, least: int, rubbish: int) -> None:
    """What fills a forward up, and rows behind it, change no logit. Seen to fail: a bucket below the end."""
    count = min(count, WINDOW - start)
    tokens, runner = some_tokens(WINDOW, 48), StaticRunner(MODELS["qwen2"], least)
    runner.forward([rubbish] * WINDOW, 0, 1)
    runner.forward(tokens[:start], 0, 1)
    ours = runner.forward(tokens[start : start + count], start, count)
    assert (ours - EXPECTED["qwen2"][start : start + count]).abs().max() < TOLERANCE


@settings(deadline=None)
@given(end=st.integers(1, WINDOW + WIDTHS[-1] - 1), least=st.sampled_from([1, 16, 64, 500]))
def test_what_is_looked_at_is_a_power_of_two_or_everything(end: int, least: int) -> None:
    """Few shapes, all of them aligned. Seen to fail: a bucket below the end."""
    runner = StaticRunner(MODELS["qwen2"], least)
    seen = runner._room(end)
    assert end <= seen <= runner._rows.shape[3]
    assert seen <= max(2 * end, least)
    assert seen.bit_count() == 1 or seen == runner._rows.shape[3]


def test_buffers_stay_in_place_until_they_must_grow() -> None:
    """And what they hold is kept, the hidden states with it. Seen to fail: hidden states that start empty."""
    runner = StaticRunner(MODELS["qwen2"], LEAST)
    runner.keep_hidden()
    tokens, places = some_tokens(WINDOW, 48), set[int]()
    for start in range(WINDOW):
        runner.forward(tokens[start : start + 1], start, 1)
        places.add(runner._rows.data_ptr())
    assert len(places) <= 5  # 16, 32, 64, 128, 160
    logits = runner.reader(range(48))(runner.hidden(0, WINDOW))
    assert (logits - EXPECTED["qwen2"]).abs().max() < TOLERANCE


def test_what_is_recorded_reads_buffers_only() -> None:
    """Replayed work is that of another call. Seen to fail: tokens of the call; a mask of the call; buffers from before
    they grew, or from before hidden states were kept."""
    recorded = []
    runner = StaticRunner(MODELS["starcoder2"], LEAST, record=lambda work: recorded.append(work) or work)
    tokens, expected = some_tokens(WINDOW, 48), EXPECTED["starcoder2"]
    for start in range(0, 120, 3):
        if start == 60:
            runner.keep_hidden()
        branch = runner.forward([*tokens[start : start + 1], 5, 6], start, 3, [-1, -1])
        assert (branch[0] - expected[start]).abs().max() < TOLERANCE
        ours = runner.forward(tokens[start : start + 3], start, 3)
        assert (ours - expected[start : start + 3]).abs().max() < TOLERANCE
    states = runner.reader(range(48))(runner.hidden(60, 120))
    assert (states - expected[60:120]).abs().max() < TOLERANCE
    assert len(recorded) == 5  # of one width: 16, 32, 64, 128 rows, and again with hidden states


def test_a_first_call_is_not_recorded() -> None:
    """Nobody waits for a recording before the first token."""
    recorded = []
    runner = StaticRunner(MODELS["llama"], LEAST, record=lambda work: recorded.append(work) or work)
    for width in (1, 2, 3, 4, 7):
        runner.forward([1] * width, 0, 1)
        assert len(recorded) == (width >= 4)  # filled up to 4 for the second time


def test_a_recording_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A driver without graphs. Seen to fail: the error let through; said at each forward."""

    def fails(work):
        raise RuntimeError("no graphs here")

    runner, tokens = StaticRunner(MODELS["llama"], LEAST, record=fails), some_tokens(WINDOW, 48)
    for start in range(40):
        ours = runner.forward(tokens[start : start + 1], start, 1)
        assert (ours - EXPECTED["llama"][start]).abs().max() < TOLERANCE
    assert [record.getMessage() for record in caplog.records] == [
        "forwards are launched kernel by kernel, which is slower: RuntimeError"
    ]


def test_logits_outlive_the_next_forward() -> None:
    runner = StaticRunner(MODELS["llama"], LEAST)
    first = runner.forward([1, 2, 3], 0, 1)
    kept = first.clone()
    runner.forward([4, 5, 6], 0, 1)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("architecture", ["gemma", "granite", "qwen2"])
def test_features_are_those_of_the_general_runner(architecture: str) -> None:
    """Seen to fail: Granite's logits not divided; Gemma's embedding scaled twice."""
    model, tokens = MODELS[architecture], some_tokens(20, 48)
    ours, theirs = StaticRunner(model, LEAST), TransformersRunner(model)
    assert ours.keep_hidden() == theirs.keep_hidden()
    logits = ours.forward(tokens, 0, 20)
    theirs.forward(tokens, 0, 20)
    torch.testing.assert_close(ours.hidden(3, 20), theirs.hidden(3, 20), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(ours.embed(tokens), theirs.embed(tokens))
    torch.testing.assert_close(ours.reader([5, 0])(ours.hidden(0, 20)), logits[:, [5, 0]], atol=TOLERANCE, rtol=0)


def test_the_weights_are_held_once() -> None:
    """transformers' model goes on with views of the joined ones, and saves what it was loaded with."""
    model = uneven_model("qwen2")
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    runner = StaticRunner(model, LEAST)
    assert model.model.layers[1].self_attn.k_proj.weight.data_ptr() > runner._joined.layers[1].qkv.weight.data_ptr()
    held = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert {weight.untyped_storage().data_ptr() for layer in runner._joined.layers for weight in layer.up[:1]} <= held
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, before[name])


@pytest.mark.parametrize(
    ("architecture", "device", "kind"),
    [("qwen2", "cuda", StaticRunner), ("qwen2", "cpu", TransformersRunner), ("gemma2", "cuda", TransformersRunner)],
)
def test_which_runner_a_model_gets(
    architecture: str, device: str, kind: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the static one, where it can be. Seen to fail: on a CPU, too."""
    model, made = copy.deepcopy(tiny_model(architecture)), []
    for each in (StaticRunner, TransformersRunner):
        monkeypatch.setattr(checkpoints, each.__name__, lambda model, each=each: made.append(each))
    monkeypatch.setattr(type(model), "device", torch.device(device))
    checkpoints.runner_of(model)
    assert made == [kind]
