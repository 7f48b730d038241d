"""Lists the known pairs: memory, fill-in-the-middle format, licence, and whether the models are on this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from engine.config import EMBEDDED
from engine.pairs import KNOWN_PAIRS, KnownPair

SUMMARY = "list the known target/draft pairs"

_HERE, _PARTLY, _ABSENT = "on this machine", "partly on this machine", "not on this machine"


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(arguments: argparse.Namespace) -> int:
    print(f"{'PAIR':22}{'MEMORY':>8}  {'FIM FORMAT':20}LICENCE")
    for pair in KNOWN_PAIRS:
        print("\n" + "\n".join(_lines(pair)))
    print("\nMemory is both models' weights. `specter complete --pair NAME …` uses a pair;")
    print("what is not on this machine comes from huggingface.co the first time.")
    return 0


def _lines(pair: KnownPair) -> list[str]:
    lines = [f"{pair.name:22}{pair.memory_gb:>5.4g} GB  {pair.fim:20}{pair.licence}"]
    models = {"target": pair.target, "draft": pair.draft or "none"}
    for role, model in models.items():
        where = _HERE if pair.name == EMBEDDED else "" if pair.draft is None and role == "draft" else presence(model)
        lines.append(f"  {role:8}{model:40}{where}".rstrip())
    return lines


def presence(model: str) -> str:
    """Whether the Hugging Face cache holds the model's weights. Asks no network."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")
    if not isinstance(config, str):
        return _ABSENT
    folder = Path(config).parent
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        return _HERE if all((folder / shard).is_file() for shard in shards) else _PARTLY
    weights = ("model.safetensors", "pytorch_model.bin")
    return _HERE if any((folder / name).is_file() for name in weights) else _PARTLY
