"""Where adapted weights are kept: a file a pair in the user's data folder, which says what it belongs to."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_data_path
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine import embedded
from engine.adaptation.learner import Outcome, Weights
from engine.config import EMBEDDED
from engine.drafters.trained import file_notes, save_atomically
from engine.embedded import Int8Weight
from engine.identity import identity

log = logging.getLogger(__name__)

FORMAT = "1"
_KIND = "adaptation"


def folder() -> Path:
    return user_data_path("specter", appauthor=False) / "adaptation"


def embedded_pair() -> str:
    """A number for both of its models."""
    digest = hashlib.sha256(identity(EMBEDDED).encode())
    digest.update((embedded.FOLDER / "draft" / "model.safetensors").read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """An adaptation on this machine. `trouble`: why it is not used, in a line; or nothing."""

    path: Path
    bytes: int
    places: int = 0
    before: int = 0
    after: int = 0
    trouble: str = ""


def kept() -> Iterator[Kept]:
    """All there are."""
    for path in sorted(folder().glob("*.safetensors")) if folder().is_dir() else ():
        size = path.stat().st_size
        try:
            notes = _notes(path)
        except (OSError, SafetensorError):
            yield Kept(path, size, trouble="damaged, or no file of ours")
            continue
        counts = [count for name in ("places", "before", "after") if isinstance(count := notes.get(name), int)]
        if _misfit(notes) or len(counts) < 3:
            yield Kept(path, size, trouble=_misfit(notes) or "damaged")
        else:
            yield Kept(path, size, counts[0], counts[1], counts[2])


def remove() -> list[Path]:
    """Removes all that were kept, unfinished ones too; which. Raises OSError."""
    found = sorted(path for path in folder().glob("*") if path.is_file()) if folder().is_dir() else []
    for path in found:
        path.unlink(missing_ok=True)
    return found


class Store:
    """The adaptation of one pair, by its number; `like` are the weights of the draft as it ships."""

    def __init__(self, pair: str, like: Weights) -> None:
        self._pair = pair
        self._like = like
        kind = "int8" if any(isinstance(weight, Int8Weight) for weight in like.values()) else "float32"
        self.path = folder() / f"{pair[:16]}-{kind}.safetensors"

    def read(self) -> Weights | None:
        """None, and a line in the log, where it does not fit: it is ignored, and the next one takes its place."""
        if not self.path.exists():
            return None
        trouble = "damaged, or no file of ours"
        try:
            with safe_open(self.path, "pt") as file:
                notes = file_notes(file)
                trouble = _misfit(notes) or ("for another pair" if notes.get("pair") != self._pair else "")
                stored = {} if trouble else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            stored = {}
        weights = embedded.joined(stored)
        if not trouble and not _fits(weights, self._like):
            trouble = "damaged: its weights are not those of the draft"
        if trouble:
            log.warning("%s is ignored: it is %s; `specter adaptation --remove` removes it", self.path, trouble)
            return None
        return weights

    def write(self, weights: Weights, outcome: Outcome) -> None:
        """Whole or not at all. A line in the log if it cannot be written: it is used all the same."""
        tensors = dict[str, Tensor]()
        for name, weight in weights.items():
            if isinstance(weight, Int8Weight):
                tensors[name], tensors[f"{name.removesuffix('.weight')}.scale"] = weight.rows, weight.scales
            else:
                tensors[name] = weight
        counts = {"places": outcome.places, "before": outcome.before, "after": outcome.after}
        notes: dict[str, Any] = {"kind": _KIND, "format": FORMAT, "pair": self._pair, **counts}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # weights tell something of the text
            save_atomically(self.path, tensors, notes)
        except OSError as error:
            log.warning("what the draft learned cannot be written to %s (%s)", self.path, error.strerror or error)


def _notes(path: Path) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        return file_notes(file)


def _misfit(notes: Mapping[str, Any]) -> str:
    if notes.get("kind") != _KIND:
        return "no file of ours"
    return "" if notes.get("format") == FORMAT else "of another version of specter"


def _fits(weights: Weights, like: Weights) -> bool:
    return weights.keys() == like.keys() and all(_alike(weight, like[name]) for name, weight in weights.items())


def _alike(weight: Tensor | Int8Weight, like: Tensor | Int8Weight) -> bool:
    if isinstance(weight, Int8Weight) and isinstance(like, Int8Weight):
        return _alike(weight.scales, like.scales) and weight.rows.shape == like.rows.shape
    if isinstance(weight, Int8Weight) or isinstance(like, Int8Weight):
        return False
    same = weight.shape == like.shape and weight.dtype == like.dtype
    return same and bool(torch.isfinite(weight).all())
