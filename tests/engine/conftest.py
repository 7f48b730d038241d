"""Loaded once for all engine tests: loading takes a second, and every test leaves behind a valid cache."""

import pytest

from engine.config import EngineConfig
from engine.loading import LoadedPair, load
from engine.prompt import Tokenizer


@pytest.fixture(scope="session")
def loaded() -> LoadedPair:
    """The embedded pair as users get it on a CPU: int8 products."""
    return load(EngineConfig(device="cpu"))


@pytest.fixture
def pair(loaded: LoadedPair) -> LoadedPair:
    """The embedded pair with cold caches."""
    loaded.target.forget()
    if loaded.draft is not None:
        loaded.draft.forget()
    return loaded


@pytest.fixture(scope="session")
def exact_pair() -> LoadedPair:
    """The embedded pair in float32, where equality is exact but for the last bits."""
    return load(EngineConfig(device="cpu", dtype="float32"))


@pytest.fixture(scope="session")
def tokenizer(loaded: LoadedPair) -> Tokenizer:
    return loaded.tokenizer
