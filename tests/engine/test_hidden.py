"""The last hidden states beside the logits: of the right rows, whatever was guessed, moved and taken back."""

from __future__ import annotations

import pytest
import torch
from tiny import ARCHITECTURES, some_tokens, tiny_model
from torch import Tensor

from engine import embedded
from engine.fast_llama import FastLlamaRunner
from engine.model import CachedModel
from engine.prefix_store import PrefixStore
from engine.speculation import Draft
from engine.transformers_runner import TransformersRunner


@torch.no_grad()
def uncached_hidden(model, tokens: list[int]) -> Tensor:
    """What the model's body gives, without a cache. [len(tokens), size]"""
    return model.base_model(input_ids=torch.tensor([tokens]), use_cache=False)[0][0]


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_row_has_its_hidden_state(architecture: str) -> None:
    """After a rewinding too. Seen to fail: rows put behind the last ones instead of at `start`."""
    model, tokens = tiny_model(architecture), some_tokens(40, 48)
    runner = TransformersRunner(model)
    assert runner.keep_hidden() == 32
    runner.forward([*tokens[:20], 1, 2, 3], 0, 1)
    runner.forward(tokens[20:], 20, 1)
    torch.testing.assert_close(runner.hidden(0, 40), uncached_hidden(model, tokens), atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt_bigcode"])
def test_a_reader_makes_the_logits_of_its_tokens(architecture: str) -> None:
    """Seen to fail: rows of the input embedding, where the two are not tied."""
    model = tiny_model(architecture)
    runner = TransformersRunner(model)
    runner.keep_hidden()
    logits = runner.forward(some_tokens(9, 48), 0, 9)
    chosen = [5, 0, 47]
    torch.testing.assert_close(runner.reader(chosen)(runner.hidden(0, 9)), logits[:, chosen], atol=1e-5, rtol=0)
    torch.testing.assert_close(runner.embed(chosen), model.get_input_embeddings().weight[chosen])


@pytest.mark.parametrize("branch", [[8, 9], [5, 7, 10], [5], []])
def test_the_rows_of_guesses_that_came_true_are_those_of_the_verify_forward(branch: list[int]) -> None:
    """Seen to fail: `move_rows` that leaves the hidden states where they were."""
    model, tokens = tiny_model("llama"), some_tokens(20, 48)
    runner = TransformersRunner(model)
    cached = CachedModel(runner, 48)
    runner.keep_hidden()
    cached.logits(tokens, guesses=Draft((5, 6, 7, 8, 9, 10), (-1, 0, 0, -1, 3, 2)))
    judged = runner.hidden(20, 26).clone()
    true = cached.hidden([*tokens, *branch], 18)
    assert true is not None
    rows = {5: 0, 6: 1, 7: 2, 8: 3, 9: 4, 10: 5}
    assert torch.equal(true[2:], judged[[rows[token] for token in branch]])
    torch.testing.assert_close(true, uncached_hidden(model, [*tokens, *branch])[18:], atol=1e-4, rtol=0)
    assert cached.hidden([*tokens, *branch, 11], 18) is None


def test_the_lean_forward_keeps_them_too_and_changes_no_logit() -> None:
    """On the embedded target as users run it. Seen to fail: hidden states before the last norm."""
    weights, shape, tokens = embedded.stored_weights("target"), embedded.shape("target"), some_tokens(60, 16384)
    plain, keeping = FastLlamaRunner(shape, weights), FastLlamaRunner(shape, weights)
    assert keeping.keep_hidden() == 512
    guesses, parents = [5, 6, 7, 8], [-1, -1, 1, 0]
    logits = plain.forward([*tokens, *guesses], 0, 5, parents)
    assert torch.equal(keeping.forward([*tokens, *guesses], 0, 5, parents), logits)
    keeping.move_rows([61, 62], 60)  # the branch 6, 7
    plain.move_rows([61, 62], 60)
    everything = range(16384)
    torch.testing.assert_close(keeping.reader(everything)(keeping.hidden(59, 62)), logits[[0, 2, 3]], atol=1e-2, rtol=0)
    assert torch.equal(keeping.forward([9], 62, 1), plain.forward([9], 62, 1))
    assert plain._hidden is None


@pytest.mark.parametrize("kind", ["fast", "general"])
def test_they_come_back_with_a_document_that_was_put_away(kind: str) -> None:
    """Seen to fail: rows read without them."""
    model = tiny_model("llama")
    runner = FastLlamaRunner(model.config, model.state_dict()) if kind == "fast" else TransformersRunner(model)
    cached = CachedModel(runner, 48, PrefixStore(1 << 20).shelf())
    runner.keep_hidden()
    first, second = some_tokens(60, 48), some_tokens(70, 48, seed=1)
    cached.logits(first)
    cached.logits(second)
    cached.logits([*first, 5])
    ours = cached.hidden([*first, 5], 0)
    torch.testing.assert_close(ours, uncached_hidden(model, [*first, 5]), atol=1e-4, rtol=0)
