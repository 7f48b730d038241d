"""Work over static buffers that is recorded once and replayed from then on: CUDA graphs on a GPU.

A forward is hundreds of kernels of a few microseconds each; launched one by one from Python, they take longer to launch
than to run. Recorded, they are launched together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import torch

log = logging.getLogger(__name__)

Work = Callable[[], object]


class CudaGraphs:
    """Records for one device. What is recorded must have run before: libraries set themselves up at first."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay


def unrecorded(work: Work) -> Work:
    """Where nothing can be recorded: the work itself, which reads and writes the same buffers each time."""
    return work


class Replays:
    """Runs each piece of work as it is the first time, so that nobody waits for a recording, and recorded later."""

    def __init__(self, record: Callable[[Work], Work]) -> None:
        self._record: Callable[[Work], Work] | None = record
        self._ready: dict[Hashable, Work] = {}
        self._known: set[Hashable] = set()

    def run(self, key: Hashable, work: Work) -> None:
        """work: what `key` names; nothing in it may depend on anything else but what buffers hold."""
        if key not in self._ready and key in self._known and self._record is not None:
            try:
                self._ready[key] = self._record(work)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._record = None
                log.warning("forwards are launched kernel by kernel, which is slower: %s", type(error).__name__)
                log.debug("a recording failed", exc_info=error)
        self._known.add(key)
        self._ready.get(key, work)()

    def forget(self) -> None:
        """What was recorded is of buffers that are none any more."""
        self._ready.clear()
        self._known.clear()
