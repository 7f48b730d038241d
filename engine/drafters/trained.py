"""Files of trained drafters: safetensors that say what they hold and which target they were trained for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.config import ConfigError

Kind = Literal["heads", "eagle"]

FORMAT = "1"
_NOTES = "specter"  # one entry: several would be written in any order, and equal files would differ


def read(kind: Kind, path: Path, target: str) -> dict[str, Tensor]:
    """The tensors, floating ones in float32. target: the identity of the target at hand.

    Raises ConfigError about `kind` if the file is not there, damaged, of another kind or for another target.
    """
    fix = f"train one with `specter train {kind} DIR --out FILE`"
    if not path.is_file():
        raise ConfigError(kind, f"{path} is no file; {fix}")
    try:
        with safe_open(path, "pt") as file:
            notes = file_notes(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError):
        raise ConfigError(kind, f"{path} is damaged or no safetensors file; {fix}") from None
    if notes.get("kind") != kind or notes.get("format") != FORMAT:
        raise ConfigError(kind, f"{path} holds no {kind} of this version of specter; {fix}")
    if notes.get("target") != target:
        name = notes.get("target_name", "unknown")
        raise ConfigError(kind, f"{path} was trained for another target ({str(name)[:80]}); {fix} for this one")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise ConfigError(kind, f"{path} is damaged: its weights are not numbers; {fix}")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def write(kind: Kind, path: Path, target: str, target_name: str, tensors: Mapping[str, Tensor]) -> None:
    """Whole or not at all; floating tensors in bfloat16. Raises OSError."""
    notes = {"kind": kind, "format": FORMAT, "target": target, "target_name": target_name}
    stored = {
        name: (tensor.detach().bfloat16() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    save_atomically(path, stored, notes)


def file_notes(file: Any) -> dict[str, Any]:
    """What `save_atomically` noted in an open file; {} in one that is not ours."""
    try:
        notes = json.loads((file.metadata() or {}).get(_NOTES, "{}"))
    except ValueError:
        return {}
    return notes if isinstance(notes, dict) else {}


def save_atomically(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """A reader sees the old file or the new one, also after a crash. Raises OSError."""
    part = path.with_name(path.name + ".part")
    try:
        save_file(tensors, part, {_NOTES: json.dumps(notes, sort_keys=True)})
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except SafetensorError as error:  # how it says that the disk is full
        raise OSError(str(error)) from None
    finally:
        part.unlink(missing_ok=True)


def require_shapes(
    kind: Kind, path: Path, tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], vocab: int
) -> None:
    """Raises ConfigError unless there are exactly these tensors, with these shapes, and `vocabulary` holds ids."""
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    ids = tensors.get("vocabulary", torch.empty(0))
    fits = len(ids) > 0 and not ids.is_floating_point() and int(ids.min()) >= 0 and int(ids.max()) < vocab
    if found != dict(shapes) or not fits:
        raise ConfigError(kind, f"{path} does not fit this target; train one with `specter train {kind} DIR`")
