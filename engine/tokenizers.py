"""A checkpoint's tokenizer without its model."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from engine.config import ConfigError
from engine.prompt import Tokenizer
from engine.sources import is_embedded


def load_tokenizer(key: str, source: str) -> Tokenizer:
    """That of a folder, of a model id in the Hugging Face cache, or the embedded pair's. Raises ConfigError about
    `key`, also if it has no fill-in-the-middle tokens."""
    fix = "give a folder with a tokenizer, a model id whose tokenizer is on this machine, or embedded"
    if is_embedded(source):
        from engine import embedded

        return embedded.tokenizer()
    from transformers import AutoTokenizer

    try:
        local = Path(source).expanduser()
        where = str(local) if local.exists() else source
        return cast(Tokenizer, AutoTokenizer.from_pretrained(where, local_files_only=True))
    except Exception:  # transformers and its parsers raise whatever they like
        raise ConfigError(key, f"{source[:200]} has no tokenizer that can be read; {fix}") from None
