from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from lsp_fakes import Client, FakeEngine


@pytest.fixture(autouse=True)
def fresh_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeEngine]]:
    """The fake engine's class as it was written, whatever the last test made of it."""
    monkeypatch.setattr(FakeEngine, "made", [])
    for name in ("script", "pause", "load_error", "load_gate"):
        monkeypatch.setattr(FakeEngine, name, FakeEngine.__dict__[name])
    return iter([FakeEngine])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client whose server is initialized and ready."""
    client = await Client().ready()
    yield client
    client.connection.lost()
    await client.connection.close()
