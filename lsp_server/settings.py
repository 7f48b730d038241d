"""The user's `specter.*` settings: any JSON to checked values, with a complaint for each that cannot be used.

Knows which keys exist and their types. Whether a model or a temperature is possible is the engine's to say
(`EngineConfig`), under the same names.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lsp_server import exclusions

Multiline = Literal["auto", "always", "never"]


class Problem(NamedTuple):
    """A setting that was left out: its key as the user wrote it, and how to repair it."""

    key: str
    fix: str

    def __str__(self) -> str:
        return f"specter.{self.key}: {self.fix}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client asked for. `engine` holds EngineConfig's fields by their names, those that were set."""

    enabled: bool = True
    engine: Mapping[str, object] = field(default_factory=dict)
    deadline_ms: int = 5000
    debounce_ms: int | None = None  # None follows the rhythm of typing, see pace.py
    multiline: Multiline = "auto"
    languages: Mapping[str, bool] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    open_files: bool = True
    max_snippets: int | None = None  # as many as are good for the model

    def allows(self, language_id: str) -> bool:
        return self.enabled and self.languages.get(language_id, True)


class _Setting(NamedTuple):
    check: Callable[[Any], bool]
    expected: str
    name: str  # of the field in Settings, or behind "engine." in EngineConfig


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _within(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: _count(value) and low <= value <= high


_SETTINGS: dict[str, _Setting] = {
    "enabled": _Setting(_boolean, "true or false", "enabled"),
    "pair": _Setting(_text, 'the name of a pair, see `specter pairs`, or "auto"', "engine.pair"),
    "target": _Setting(_text, "a checkpoint folder, a GGUF file or a model id", "engine.target"),
    "draft": _Setting(_text, 'a checkpoint folder, a GGUF file, a model id or "none"', "engine.draft"),
    "device": _Setting(_text, '"auto", "cuda" or "cpu"', "engine.device"),
    "cacheMb": _Setting(_count, "megabytes, a whole number", "engine.cache_mb"),
    "mode": _Setting(_text, '"greedy" or "sampled"', "engine.mode"),
    "temperature": _Setting(_number, "a number from 0 to 100", "engine.temperature"),
    "topP": _Setting(_number, "a number above 0, up to 1", "engine.top_p"),
    "seed": _Setting(_count, "a whole number", "engine.seed"),
    "heads": _Setting(_text, "a file that `specter train heads` wrote", "engine.heads"),
    "eagle": _Setting(_text, "a file that `specter train eagle` wrote", "engine.eagle"),
    "adaptation": _Setting(_boolean, "true or false", "engine.adaptation"),
    "maxTokens": _Setting(_count, "a whole number", "engine.max_tokens"),
    "deadlineMs": _Setting(_within(1, 600_000), "milliseconds, a whole number from 1 to 600000", "deadline_ms"),
    "debounceMs": _Setting(
        lambda value: value == "auto" or _within(0, 10_000)(value),
        'milliseconds, a whole number from 0 to 10000, or "auto"',
        "debounce_ms",
    ),
    "multiline": _Setting(
        lambda value: value in ("auto", "always", "never"), '"auto", "always" or "never"', "multiline"
    ),
    "languages": _Setting(
        lambda value: isinstance(value, dict) and all(_boolean(on) for on in value.values()),
        'language ids with true or false, as in {"markdown": false}',
        "languages",
    ),
    "exclude": _Setting(
        lambda value: isinstance(value, list) and all(_text(glob) for glob in value),
        'a list of globs, as in ["generated/**"]',
        "exclude",
    ),
    "context.openFiles": _Setting(_boolean, "true or false", "open_files"),
    "context.maxSnippets": _Setting(_within(0, 64), "a whole number from 0 to 64", "max_snippets"),
    "server.url": _Setting(_text, "the address of a server, as in http://127.0.0.1:8000", "engine.server_url"),
    "server.model": _Setting(_text, "the name under which the server has the model", "engine.server_model"),
    "server.keyFile": _Setting(_text, "a file that holds the server's key", "engine.server_key_file"),
    "server.tokenizer": _Setting(_text, 'a folder, a model id or "embedded"', "engine.server_tokenizer"),
}
KEYS = tuple(_SETTINGS)  # without "specter."
_GROUPS = {key.partition(".")[0] for key in _SETTINGS if "." in key}


def parse(*sources: object) -> tuple[Settings, list[Problem]]:
    """The settings in `sources`, each a JSON value as a client sends it, later ones over earlier ones.

    null and "" leave a setting at its default. What is unknown or of a wrong type is left out and complained of.
    """
    given: dict[str, object] = {}
    problems: list[Problem] = []
    for source in sources:
        for key, value in _flat(source):
            problem = _problem(key, value)
            if problem is None:
                given[key] = value
            elif problem not in problems:
                problems.append(problem)
    settings = _settings(given)
    complaints = (exclusions.complaint(glob) for glob in settings.exclude)  # those without one still exclude
    return settings, problems + [Problem("exclude", complaint) for complaint in complaints if complaint is not None]


def setting_key(field_name: str) -> str:
    """The key under which users know a field of EngineConfig."""
    return next((key for key, setting in _SETTINGS.items() if setting.name == f"engine.{field_name}"), field_name)


def _settings(given: Mapping[str, object]) -> Settings:
    values: dict[str, Any] = {}
    engine: dict[str, object] = {}
    for key, value in given.items():
        name = _SETTINGS[key].name
        if name.startswith("engine."):
            engine[name.removeprefix("engine.")] = value
        else:
            values[name] = value
    if values.get("debounce_ms") == "auto":
        values["debounce_ms"] = None
    if "exclude" in values:
        values["exclude"] = tuple(values["exclude"])
    return Settings(engine=engine, **values)


def _flat(source: object) -> Iterator[tuple[str, object]]:
    """Keys with dots and their values; groups may be nested or written with dots, all under "specter" or not."""
    if not isinstance(source, dict):
        return
    for key, value in source.items():
        key = key.removeprefix("specter.")
        if key == "specter" and isinstance(value, dict):
            yield from _flat(value)
        elif key in _GROUPS and isinstance(value, dict):
            yield from ((f"{key}.{inner}", below) for inner, below in value.items() if below not in (None, ""))
        elif value not in (None, ""):
            yield key, value


def _problem(key: str, value: object) -> Problem | None:
    setting = _SETTINGS.get(key)
    if setting is None:
        near = difflib.get_close_matches(key, _SETTINGS, n=1)
        return Problem(key, f"there is no such setting; {f'did you mean specter.{near[0]}?' if near else 'remove it'}")
    return None if setting.check(value) else Problem(key, f"expected {setting.expected}")
