"""Runners against transformers without a cache: every architecture, every width, trees, rewinding."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
import torch
from tiny import ARCHITECTURES, some_tokens, tiny_model, uncached_logits
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine import embedded
from engine.checkpoints import embedded_model
from engine.embedded import Role
from engine.fast_llama import FastLlamaRunner, product
from engine.runners import tree_layout
from engine.transformers_runner import TransformersRunner, UnsupportedModelError

ATTENTION_ONLY = sorted(ARCHITECTURES)
WIDTHS = [1, 2, 3, 5, 8, 16, 64, 300]


def config_of(role: Role):
    return AutoConfig.from_pretrained(embedded.FOLDER / role)


@pytest.mark.parametrize("architecture", ATTENTION_ONLY)
def test_equals_the_model_without_a_cache(architecture: str) -> None:
    """In pieces, with guesses taken back, past the sliding window. Seen to fail: no `position_ids`; no rewinding."""
    model, tokens = tiny_model(architecture), some_tokens(40, 48)
    expected = uncached_logits(model, tokens)
    runner = TransformersRunner(model)
    runner.forward([*tokens[:20], 1, 2, 3], 0, 1)
    pieces = [runner.forward(tokens[20:30], 20, 10)]
    runner.forward([7, 7, 7, 7], 30, 2)
    pieces += [runner.forward(tokens[30:31], 30, 1), runner.forward(tokens[31:], 31, 9)]
    torch.testing.assert_close(torch.cat(pieces), expected[20:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ATTENTION_ONLY)
def test_tree_rows_see_their_own_branch_only(architecture: str) -> None:
    """Seen to fail: siblings that see one another; positions that count nodes instead of depth."""
    model, tokens = tiny_model(architecture), some_tokens(30, 48)
    runner = TransformersRunner(model)
    if not runner.takes_trees:
        pytest.skip("a sliding window takes chains only")
    guesses, parents = [5, 6, 7, 8, 9, 10], [-1, 0, 0, -1, 3, 2]
    branches = [[], [5], [5, 6], [5, 7], [8], [8, 9], [5, 7, 10]]
    runner.forward(tokens[:20], 0, 1)
    ours = runner.forward([*tokens[20:], *guesses], 20, 7, parents)
    expected = torch.stack([uncached_logits(model, tokens + branch)[-1] for branch in branches])
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)
    runner.move_rows([30, 32, 35], 30)  # the branch 5, 7, 10
    ours = runner.forward([11], 33, 1)
    torch.testing.assert_close(ours, uncached_logits(model, [*tokens, 5, 7, 10, 11])[-1:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ["starcoder2", "mistral", "gemma2"])
def test_sliding_windows_refuse_trees(architecture: str) -> None:
    """Their mask would be lost: seen to give wrong logits where the refusal was taken out."""
    assert not TransformersRunner(tiny_model(architecture)).takes_trees


def test_tree_layout() -> None:
    positions, visible = tree_layout(4, 2, [-1, 0, -1])
    assert positions.tolist() == [2, 3, 4, 3]
    assert visible.int().tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1]]


def test_buffers_grow_with_what_they_hold() -> None:
    """Seen to fail: `_grown` that starts an empty buffer."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **{**small_llama, "num_hidden_layers": 1}))
    tokens = some_tokens(1100, 32)
    runner = TransformersRunner(model.eval())
    for start in range(0, 1100, 100):
        last = runner.forward(tokens[start : start + 100], start, 1)
    torch.testing.assert_close(last[0], uncached_logits(model, tokens)[-1], atol=1e-4, rtol=0)


small_llama = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


@pytest.mark.parametrize("architecture", ["mamba", "rwkv", "jamba", "qwen3_next", "falcon_h1"])
def test_a_running_state_is_refused(architecture: str) -> None:
    """B25: such models cannot take a guess back. One line that says why."""
    try:
        config = AutoConfig.for_model(architecture, hidden_size=32, num_hidden_layers=4, vocab_size=32)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (ImportError, ValueError, TypeError) as error:  # depends on the transformers version
        pytest.skip(f"transformers cannot build it: {error}")
    with pytest.raises(UnsupportedModelError, match=rf"^{architecture} keeps a running state \(.*\) that cannot be re"):
        TransformersRunner(model)


# The lean runner over the shipped weights, against transformers' Llama with the same weights in float32.

TOKENS = some_tokens(400, 16000)


@pytest.fixture(scope="module", params=["target", "draft"])
def role(request) -> Role:
    return request.param


@pytest.fixture(scope="module")
def expected(role: Role) -> Tensor:
    return uncached_logits(embedded_model(role, torch.float32), TOKENS)


def in_pieces(runner: FastLlamaRunner, widths: list[int]) -> Tensor:
    """The logits after each token, computed in forwards of these widths."""
    ends = list(accumulate(widths, initial=0))
    return torch.cat([runner.forward(TOKENS[start:end], start, end - start) for start, end in pairwise(ends)])


def test_float32_equals_transformers(role: Role, expected: Tensor) -> None:
    """Seen to fail: RoPE in the interleaved form; the mask one row late; a norm without its weight."""
    logits = in_pieces(FastLlamaRunner(config_of(role), embedded.weights(role)), WIDTHS)
    assert (logits - expected[: len(logits)]).abs().max() < 1e-3
    assert torch.equal(logits.argmax(-1), expected[: len(logits)].argmax(-1))


@pytest.mark.parametrize("width", [1, 16, 40])
def test_int8_is_close(role: Role, expected: Tensor, width: int) -> None:
    """bfloat16 activations cost some per cent of the logits' spread; a clearer choice stays the same."""
    runner = FastLlamaRunner(config_of(role), embedded.stored_weights(role))
    logits = in_pieces(runner, [width] * (80 // width))
    difference, spread = (logits - expected[:80]).abs().max(), expected[:80].std()
    print(f"{role}, width {width}: at most {difference:.3f} of {spread:.3f}")
    assert difference < 0.1 * spread
    best = expected[:80].topk(2).values
    clear = best[:, 0] - best[:, 1] > 2 * difference
    assert clear.sum() > 40
    assert torch.equal(logits.argmax(-1)[clear], expected[:80].argmax(-1)[clear])


def test_the_int8_product_does_not_depend_on_the_width() -> None:
    """Plain decoding is one wide and verification a few: bit for bit, a row is worth the same in both."""
    weight = embedded.stored_weights("target")["model.layers.0.mlp.down_proj.weight"]
    x = torch.randn(16, weight.rows.shape[1], generator=torch.Generator().manual_seed(0))
    alone = torch.cat([product(row[None], weight) for row in x])
    for width in (2, 3, 4, 5, 8, 16):
        assert torch.equal(product(x[:width], weight), alone[:width])


# The order of sums is the library's. Where torch multiplies with another (ARM), nobody makes this promise.
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="the sums of another library were not studied")
@pytest.mark.parametrize("start", [1, 30, 190, 250, 380, 384, 500, 1000])
def test_a_tokens_logits_are_the_same_bits_at_any_width(start: int) -> None:
    """So that int8 mode, too, writes what plain decoding writes. Seen to fail: two queries instead of four (every
    start); rows not filled up to 384 (start 1).
    """
    runner = FastLlamaRunner(config_of("target"), embedded.stored_weights("target"))
    tokens = some_tokens(start + 16, 16000)
    runner.forward(tokens[:start], 0, 1)
    alone = torch.cat([runner.forward([token], start + i, 1) for i, token in enumerate(tokens[start:])])
    for width in (2, 3, 4, 5, 8, 16):
        assert torch.equal(runner.forward(tokens[start : start + width], start, width), alone[:width])
