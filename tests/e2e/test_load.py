"""Four editors on one real server, for a few seconds; `python -m tests.e2e.load` is the same with 32."""

from __future__ import annotations

from .load import local


async def test_four_clients_get_their_own_replies_in_fair_turns():
    """Seen to fail with the engine given another client's request. Replies to another connection, replies sent twice
    and the last come served first were seen to fail in `python -m tests.e2e.load` with 4 and 12 clients."""
    load = await local(4, seconds=4.0)
    assert load.failures == []
    assert load.values["requests"] > 40
