"""The table of known pairs, and which of them `auto` takes."""

from __future__ import annotations

import pytest
import torch

from engine import loading
from engine.config import EMBEDDED, ConfigError, EngineConfig
from engine.pairs import KNOWN_PAIRS, fitting, known_pair
from engine.prompt import FAMILIES


def test_the_table() -> None:
    assert len({pair.name for pair in KNOWN_PAIRS}) == len(KNOWN_PAIRS)
    families = {family.name for family in FAMILIES}
    for pair in KNOWN_PAIRS:
        assert pair.fim.partition(",")[0] in families
        assert pair.draft is None or pair.draft.billions < pair.target.billions
        assert pair.memory_gb > pair.target.width * pair.target.billions
    assert {"qwen", "starcoder2", "deepseek", "codellama", "codegemma", "codestral", "seed-coder", "mellum"} <= {
        pair.fim for pair in KNOWN_PAIRS
    }


def test_memory_is_weights_and_cache() -> None:
    """7.62 B and 0.494 B parameters of two bytes; 57,344 and 12,288 bytes a token, 8,192 tokens."""
    assert known_pair("qwen2.5-coder-7b").memory_gb == pytest.approx(15.24 + 0.988 + 0.470 + 0.101, abs=0.01)
    assert known_pair(EMBEDDED).memory_gb == pytest.approx(0.044, abs=0.001)


def test_fitting_is_best_first_and_leaves_room() -> None:
    names = [pair.name for pair in fitting(20)]
    assert "qwen2.5-coder-7b" in names
    assert "qwen2.5-coder-14b" not in names
    sizes = [pair.target.billions for pair in fitting(1000)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == len(KNOWN_PAIRS) - 1
    assert fitting(1) == []


def test_auto_without_a_gpu_is_the_embedded_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with all of them on the disk."""
    monkeypatch.setattr(loading, "is_here", lambda pair: True)
    assert loading.best_pair_here(torch.device("cpu")).name == EMBEDDED


@pytest.mark.parametrize(
    ("here", "free", "expected"),
    [
        ({"qwen2.5-coder-7b", "qwen2.5-coder-32b"}, 24e9, "qwen2.5-coder-7b"),
        ({"qwen2.5-coder-7b", "qwen2.5-coder-32b"}, 80e9, "qwen2.5-coder-32b"),
        ({"qwen2.5-coder-32b"}, 24e9, EMBEDDED),
        (set(), 80e9, EMBEDDED),
    ],
)
def test_auto_takes_the_largest_that_is_here_and_fits(
    here: set[str], free: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: the smallest first. The GPU is made up; what is asked of it is one number."""
    monkeypatch.setattr(loading, "is_here", lambda pair: pair.name in here)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(free), int(96e9)))
    assert loading.best_pair_here(torch.device("cuda")).name == expected


def test_auto_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert loading.load(EngineConfig(pair="auto")).name == EMBEDDED


def test_an_unknown_pair() -> None:
    with pytest.raises(ConfigError, match=r"use auto or one of embedded, .*mellum-4b"):
        known_pair("nonesuch")
