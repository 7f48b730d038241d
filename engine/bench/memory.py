"""What a drafter keeps in memory: the arrays and tensors that can be reached from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np
import torch


def held_bytes(owner: object, beside: object = None) -> int:
    """Of the arrays and tensors of `owner`, each counted once; those that `beside` has as well are not counted."""
    others = {place for place, _ in _buffers(beside)}
    return sum({place: size for place, size in _buffers(owner) if place not in others}.values())


def _buffers(owner: object) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each buffer; views of one are the same."""
    seen, front = set[int](), [owner]
    while front:
        item = front.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item.untyped_storage().data_ptr(), item.untyped_storage().nbytes()
        elif isinstance(item, np.ndarray):
            whole = item if item.base is None or not isinstance(item.base, np.ndarray) else item.base
            yield whole.__array_interface__["data"][0], whole.nbytes
        else:
            front += _parts(item)


def _parts(item: object) -> list[object]:
    if isinstance(item, Mapping):
        return list(item.values())
    if isinstance(item, list | tuple | deque):
        return [] if len(item) and isinstance(item[0], int) else list(item)
    slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(item, "__dict__", {}).values(), *(getattr(item, name, None) for name in slots)]
