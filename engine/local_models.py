"""Which models the Hugging Face cache of this machine holds. Asks no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from engine.config import EMBEDDED
from engine.pairs import KnownPair

Presence = Literal["on this machine", "partly on this machine", "not on this machine"]


def presence(model: str) -> Presence:
    """Whether the model's weights are there; "partly" after a download that was broken off."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")
    if not isinstance(config, str):
        return "not on this machine"
    folder = Path(config).parent
    indexes = (folder / f"{weights}.index.json" for weights in ("model.safetensors", "pytorch_model.bin"))
    index = next((index for index in indexes if index.is_file()), None)
    if index is not None:
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        whole = all((folder / shard).is_file() for shard in shards)
    else:
        whole = any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))
    return "on this machine" if whole else "partly on this machine"


def is_here(pair: KnownPair) -> bool:
    """Whether nothing of the pair would have to be downloaded."""
    return pair.name == EMBEDDED or all(presence(model.id) == "on this machine" for model in pair.models)
