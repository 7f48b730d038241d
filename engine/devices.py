"""Which device the models run on; asks torch alone, long before transformers is imported."""

from __future__ import annotations

import torch

from engine.config import ConfigError


def device_for(wanted: str) -> torch.device:
    """For EngineConfig's `device`. Raises ConfigError if it is not there."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "cuda is not available to this torch; use --device cpu, or install a CUDA build")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
