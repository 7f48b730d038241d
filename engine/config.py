"""The engine's configuration: checked when it is made, with the key and the fix in the message."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from engine.request import Mode, Sampling

Device = Literal["auto", "cuda", "cpu"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DrafterName = Literal[
    "auto", "none", "model", "lookup", "workspace", "lookahead", "merged", "heads", "blockwise", "eagle"
]

EMBEDDED, AUTO = "embedded", "auto"  # pairs


class ConfigError(Exception):
    """The user's mistake: `key` is the option it is about, the message names the fix, in one line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {' '.join(message.split())}")
        self.key = key


class MemoryShortError(ConfigError):
    """The models do not fit the GPU's memory as it is now."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Which models run where, and the defaults of a completion. Raises ConfigError on a value that cannot work.

    `target` and `draft` are checkpoint folders, GGUF files or model ids and override `pair`; `draft` "none" decodes
    plainly. `draft_length` is the most guesses a cycle. `heads` and `eagle` are files of trained drafters.
    `cache_mb` (2^20 bytes) is for keys and values of documents that were completed before and are not now; "auto" is
    128 on a CPU and 2048 on a GPU, 0 keeps the latest document's only.
    With `server_url`, a server computes; with `fallback`, the pair answers while that is down.
    """

    pair: str = EMBEDDED
    target: str | None = None
    draft: str | None = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    drafter: DrafterName = "auto"
    mode: Mode = "greedy"
    temperature: float = 0.2
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 64
    draft_length: int | Literal["auto"] = "auto"
    adaptation: bool = False
    heads: str | None = None
    eagle: str | None = None
    cache_mb: int | Literal["auto"] = "auto"
    server_url: str | None = None
    server_model: str | None = None  # None: the one that it serves
    server_key_file: str | None = None
    server_tokenizer: str | None = None  # a folder, a model id or "embedded"; None: the server is asked
    fallback: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EngineConfig:
        """From what a user gave: a pair that is named beside a server is there for its bad times."""
        named = given.get("server_url") is not None and not given.keys().isdisjoint(("pair", "target"))
        return cls(**{"fallback": named, **given})

    def __post_init__(self) -> None:
        for key, choices in (("device", Device), ("dtype", Dtype), ("drafter", DrafterName), ("mode", Mode)):
            _require(getattr(self, key) in get_args(choices), key, getattr(self, key), _one_of(get_args(choices)))
        for key in ("temperature", "top_p", "min_p"):
            _require(_is_number(getattr(self, key)), key, getattr(self, key), "use a number")
        _require(0 <= self.temperature <= 100, "temperature", self.temperature, "use a number from 0 to 100")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "use a number above 0, up to 1 (1 is off)")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "use a number from 0 (off) to 1")
        _require(_is_count(self.top_k), "top_k", self.top_k, "use a whole number, 0 (off) or more")
        seed_fits = self.seed is None or (_is_count(self.seed) and self.seed < 2**64)
        _require(seed_fits, "seed", self.seed, "use a whole number from 0 to 2^64 - 1, or leave it out")
        _require(
            _is_count(self.max_tokens) and 1 <= self.max_tokens <= 4096,
            "max_tokens",
            self.max_tokens,
            "use a whole number from 1 to 4096",
        )
        _require(
            self.draft_length == "auto" or (_is_count(self.draft_length) and self.draft_length <= 32),
            "draft_length",
            self.draft_length,
            "use 'auto' or a whole number from 0 to 32",
        )
        for key, kinds in (("heads", ("heads", "blockwise")), ("eagle", ("eagle",))):
            if self.drafter in kinds and not getattr(self, key):
                fix = f"give a file with --{key}; `specter train {key} DIR --out FILE` makes one"
                raise ConfigError("drafter", f"{self.drafter!r} needs trained {key}; {fix}")
        _require(
            self.cache_mb == "auto" or (_is_count(self.cache_mb) and self.cache_mb < 2**20),
            "cache_mb",
            self.cache_mb,
            "use 'auto' or a whole number of megabytes below 2^20, 0 for none",
        )
        _require(bool(self.pair), "pair", self.pair, "see `specter pairs` for the names")
        if self.server_url is not None:
            _require_address(self.server_url)

    @property
    def chosen_drafter(self) -> DrafterName:
        """Never "auto", which stands for a trained drafter where there is a file of one, else for all sources."""
        if self.drafter != "auto":
            return self.drafter
        return "eagle" if self.eagle else "heads" if self.heads else "merged"

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.mode, self.temperature, self.top_k, self.top_p, self.min_p, self.seed)

    def replace(self, **changes: Any) -> EngineConfig:
        """A copy with other values, checked again."""
        return dataclasses.replace(self, **changes)


def _require(fits: bool, key: str, value: object, fix: str) -> None:
    if not fits:
        shown = reprlib.repr(value)  # of a number with a thousand digits, the ends
        raise ConfigError(key, f"{shown} is not possible; {fix}")


def _require_address(url: str) -> None:
    """Not shown where it may hold a secret."""
    fix = "give http:// or https:// with a host, as in http://127.0.0.1:8000"
    if any(sign in url for sign in "@?#"):
        what = "the address must hold no user, key or query"
        raise ConfigError("server_url", f"{what}; {fix}, and put the key into SPECTER_SERVER_KEY or a file")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or brackets that are none
        fits = False
    fits = fits and url.isascii() and url.isprintable() and " " not in url
    _require(fits, "server_url", url, fix)


def _one_of(choices: tuple[str, ...]) -> str:
    return "use one of " + ", ".join(choices)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
