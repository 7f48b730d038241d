"""Which target a trained file belongs to: a number for its configuration, its tokenizer and its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from engine import embedded
from engine.sources import is_embedded, locate

_WEIGHTS = (".safetensors", ".bin", ".gguf")
_OTHERS = ("config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")
_WHOLE = 64 << 20  # bytes; of larger files samples are read: 30 GB would take half a minute
_SAMPLES, _SAMPLE = 256, 64 << 10


def identity(source: str) -> str:
    """The same for the same files, wherever they lie; of a model that is on this machine. Raises ConfigError."""
    digest = hashlib.sha256()
    for path in sorted(_files(source), key=lambda path: path.name):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= _WHOLE:
                digest.update(file.read())
                continue
            for sample in range(_SAMPLES):
                file.seek(sample * (size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _files(source: str) -> Iterator[Path]:
    if is_embedded(source):
        folders = [embedded.FOLDER / "target", embedded.FOLDER]
    else:
        place, options = locate("target", source)
        if "gguf_file" in options:
            yield Path(place) / options["gguf_file"]
            return
        folders = [Path(place) if Path(place).is_dir() else _snapshot(place)]
    for folder in folders:
        for path in folder.iterdir():
            if path.suffix in _WEIGHTS or path.name in _OTHERS:
                yield path


def _snapshot(model: str) -> Path:
    """The folder of a model in the Hugging Face cache."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")
    assert isinstance(config, str), "the target was loaded"
    return Path(config).parent
