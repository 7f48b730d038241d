"""Where a configuration's models come from, looked at before anything is loaded: folders, files, or ids of models that
are in the Hugging Face cache, after a download if need be. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engine.config import AUTO, EMBEDDED, ConfigError, EngineConfig
from engine.download import DownloadError, fetch
from engine.local_models import presence
from engine.pairs import KnownPair, known_pair

Report = Callable[[float, str], None]  # fraction done, what is being done
Key = Literal["target", "draft"]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")
FIX = "give a folder with a Hugging Face checkpoint and its tokenizer, a .gguf file, or a model id"


class Sources(NamedTuple):
    """The pair's name, and what each model is loaded from."""

    name: str
    target: str
    draft: str | None


def sources(config: EngineConfig, chosen: KnownPair | None = None) -> Sources:
    """What the configuration names; `chosen` stands for the pair "auto". Raises ConfigError."""
    if config.target is None:
        pair = chosen or known_pair(config.pair)
        name = pair.name
        small = None if pair.draft is None else pair.draft.id
        target, draft = (EMBEDDED, EMBEDDED) if name == EMBEDDED else (pair.target.id, small)
    else:
        name, target, draft = Path(config.target).name, config.target, None
    if config.draft is not None:
        draft = None if config.draft == "none" else config.draft
    if config.chosen_drafter not in ("model", "merged"):
        draft = None  # nothing would use it
    if config.drafter == "model" and draft is None:
        raise ConfigError("drafter", "'model' needs a draft model; give --draft PATH_OR_ID or choose --drafter none")
    return Sources(name, target, draft)


def prepare(config: EngineConfig, report: Report = lambda *_: None) -> None:
    """Sees to it that the models are on this machine. Raises ConfigError if they are not and cannot be downloaded.

    An exception that `report` raises ends a download within a second. The pair "auto" needs none.
    """
    if config.target is None and config.pair == AUTO:
        return
    _, target, draft = sources(config)
    for key, given, source in (("target", config.target, target), ("draft", config.draft, draft)):
        if source is not None and not is_embedded(source):
            _, options = locate(key, source)
            if "local_files_only" in options and presence(source) != "on this machine":
                _download("pair" if given is None else key, source, report)


def is_embedded(source: str) -> bool:
    """Whether it means the pair in the package; a folder of that name goes first."""
    return source == EMBEDDED and not Path(source).exists()


def locate(key: str, source: str) -> tuple[str, dict[str, Any]]:
    """(what from_pretrained takes, further options). Anything that looks like a path must exist; a model id is looked
    for in the cache only, see `prepare`. Raises ConfigError about `key`."""
    try:
        path = Path(source).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # a name too long; a home that is not there
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(key, f"{source[:80]!r} is not a path ({reason}); {FIX}") from None
    if not source.strip():
        raise ConfigError(key, f"{source!r} names no model; {FIX}")
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConfigError(key, f"{source} does not exist; {FIX}")
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(key, f"{source} has no config.json; {FIX}")
        if not any((path / name).is_file() for name in _TOKENIZER_FILES):
            raise ConfigError(key, f"{source} has no tokenizer ({_TOKENIZER_FILES[0]}); {FIX}")
        return str(path), {}
    if path.exists() or path.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1:
        raise ConfigError(key, f"{source} is not a model folder; {FIX}")
    return source, {"local_files_only": True}


def _download(key: str, model: str, report: Report) -> None:
    report(0.0, f"looking for {model} on huggingface.co")
    try:
        fetch([model], lambda fraction, what: report(fraction, f"downloading {what}"))
    except DownloadError as error:
        instead = "use a pair that is here (`specter pairs`)" if key == "pair" else FIX
        raise ConfigError(key, f"{model} is not on this machine: {error}; or {instead}") from None
