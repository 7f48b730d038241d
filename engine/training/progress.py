"""The state of a training as one file: parameters, optimizer, step, and what it belongs to. Written whole or not at
all, so that an interrupt or a crash leaves the one before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.config import ConfigError
from engine.drafters.trained import file_notes, save_atomically

_PARAMETER, _FIRST, _SECOND = "parameter/", "first/", "second/"  # of AdamW's moments


def save(path: Path, step: int, of: Mapping[str, Any], parameters: Mapping[str, Tensor], optimizer: Any) -> None:
    """`of`: what the training belongs to. Raises OSError."""
    tensors = {}
    for name, parameter in parameters.items():
        tensors[_PARAMETER + name] = parameter.detach().cpu().contiguous()
        if moments := optimizer.state.get(parameter):
            tensors[_FIRST + name] = moments["exp_avg"].cpu().contiguous()
            tensors[_SECOND + name] = moments["exp_avg_sq"].cpu().contiguous()
    save_atomically(path, tensors, {"step": step, "of": dict(of)})


def restore(path: Path, of: Mapping[str, Any], parameters: Mapping[str, Tensor], optimizer: Any) -> int:
    """Puts the state back; returns the step to go on with. Raises ConfigError if it is damaged or of another one."""
    fix = f"remove {path} and begin anew without --resume"
    try:
        with safe_open(path, "pt") as file:
            notes = file_notes(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        step, theirs = int(notes["step"]), dict(notes["of"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise ConfigError("resume", f"{path} is damaged or no state of a training; {fix}") from None
    changed = [key for key in of if theirs.get(key) != of[key]]
    if changed:
        raise ConfigError("resume", f"{path} was begun with another {', '.join(changed)}; say the same again, or {fix}")
    for name, parameter in parameters.items():
        stored = tensors.get(_PARAMETER + name)
        if stored is None or stored.shape != parameter.shape:
            raise ConfigError("resume", f"{path} does not hold the parameters of this training; {fix}")
        with torch.no_grad():
            parameter.copy_(stored)
        if _FIRST + name in tensors:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(step)),
                "exp_avg": tensors[_FIRST + name].to(parameter.device),
                "exp_avg_sq": tensors[_SECOND + name].to(parameter.device),
            }
    return step
