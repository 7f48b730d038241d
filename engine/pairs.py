"""Known target/draft pairs: one tokenizer, a good ratio of sizes, what they cost and under which licence."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EMBEDDED, ConfigError


@dataclass(frozen=True, slots=True)
class KnownPair:
    """`memory_gb` is what both models' weights take in bfloat16 (the embedded pair: as stored); `draft` None means
    that the family has no small sibling with the same tokens."""

    name: str
    target: str
    draft: str | None
    fim: str
    memory_gb: float
    licence: str


KNOWN_PAIRS = (
    KnownPair(EMBEDDED, "embedded, 38 M", "embedded, 6 M", "qwen, suffix first", 0.05, "Apache-2.0"),
    KnownPair("qwen2.5-coder-1.5b", "Qwen/Qwen2.5-Coder-1.5B", "Qwen/Qwen2.5-Coder-0.5B", "qwen", 4.1, "Apache-2.0"),
    KnownPair("qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B", "Qwen/Qwen2.5-Coder-0.5B", "qwen", 16.2, "Apache-2.0"),
    KnownPair("qwen2.5-coder-14b", "Qwen/Qwen2.5-Coder-14B", "Qwen/Qwen2.5-Coder-0.5B", "qwen", 30.5, "Apache-2.0"),
    KnownPair("qwen2.5-coder-32b", "Qwen/Qwen2.5-Coder-32B", "Qwen/Qwen2.5-Coder-0.5B", "qwen", 66.5, "Apache-2.0"),
    KnownPair(
        "deepseek-coder-6.7b",
        "deepseek-ai/deepseek-coder-6.7b-base",
        "deepseek-ai/deepseek-coder-1.3b-base",
        "deepseek",
        16.2,
        "DeepSeek licence",
    ),
    KnownPair("starcoder2-15b", "bigcode/starcoder2-15b", "bigcode/starcoder2-3b", "starcoder", 38.0, "OpenRAIL-M"),
    KnownPair(
        "granite-code-8b",
        "ibm-granite/granite-8b-code-base-4k",
        "ibm-granite/granite-3b-code-base-2k",
        "starcoder",
        23.0,
        "Apache-2.0",
    ),
)


def known_pair(name: str) -> KnownPair:
    """The pair of that name; raises ConfigError that lists the names."""
    for pair in KNOWN_PAIRS:
        if pair.name == name:
            return pair
    raise ConfigError("pair", f"{name!r} is unknown; use one of {', '.join(pair.name for pair in KNOWN_PAIRS)}")
