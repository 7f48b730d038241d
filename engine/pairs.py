"""Known target/draft pairs: one tokenizer, a good ratio of sizes, what they cost and under which licence."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import AUTO, EMBEDDED, ConfigError

_CONTEXT = 8192  # tokens, as prompts and completions take at the most on a GPU


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`billions` of parameters of `width` bytes; `kv_bytes` is what one token takes in the cache in bfloat16: 2 (keys
    and values) × 2 bytes × layers × key-value heads × head width, of the model's config.json."""

    id: str
    billions: float
    kv_bytes: int
    width: int = 2

    @property
    def memory_gb(self) -> float:
        """Weights and the cache of a full context."""
        return self.width * self.billions + self.kv_bytes * _CONTEXT / 1e9


@dataclass(frozen=True, slots=True)
class KnownPair:
    """`draft` None: the family has no small sibling with the same tokens, so guesses are looked up in the text.

    `fim` is a family of engine.prompt.
    """

    name: str
    target: KnownModel
    draft: KnownModel | None
    fim: str
    licence: str

    @property
    def models(self) -> tuple[KnownModel, ...]:
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def memory_gb(self) -> float:
        """Both models' weights in bfloat16 and their caches at 8,192 tokens (the embedded pair: as stored)."""
        return sum(model.memory_gb for model in self.models)


def _kv(layers: int, heads: int, width: int) -> int:
    return 2 * 2 * layers * heads * width


_EMBEDDED = KnownModel("embedded, 38 M", 0.0379, 0, 1), KnownModel("embedded, 6 M", 0.0058, 0, 1)
_QWEN_05B = KnownModel("Qwen/Qwen2.5-Coder-0.5B", 0.494, _kv(24, 2, 64))
_STARCODER2_3B = KnownModel("bigcode/starcoder2-3b", 3.03, _kv(30, 2, 128))
_DEEPSEEK_1B = KnownModel("deepseek-ai/deepseek-coder-1.3b-base", 1.35, _kv(24, 16, 128))
_GRANITE_3B = KnownModel("ibm-granite/granite-3b-code-base-128k", 3.48, _kv(32, 32, 80))

_APACHE, _OPEN_RAIL, _DEEPSEEK = "Apache-2.0", "OpenRAIL-M", "DeepSeek licence"

KNOWN_PAIRS = (
    KnownPair(EMBEDDED, *_EMBEDDED, "qwen, suffix first", _APACHE),
    *(
        KnownPair(
            f"qwen2.5-coder-{size}", KnownModel(f"Qwen/Qwen2.5-Coder-{size.upper()}", *cost), _QWEN_05B, "qwen", licence
        )
        for size, cost, licence in (
            ("1.5b", (1.54, _kv(28, 2, 128)), _APACHE),
            ("3b", (3.09, _kv(36, 2, 128)), "Qwen Research"),
            ("7b", (7.62, _kv(28, 4, 128)), _APACHE),
            ("14b", (14.8, _kv(48, 8, 128)), _APACHE),
            ("32b", (32.8, _kv(64, 8, 128)), _APACHE),
        )
    ),
    # Qwen3's tokenizer has tokens that Qwen2.5's has not, so its small coders cannot draft for it.
    KnownPair(
        "qwen3-coder-30b", KnownModel("Qwen/Qwen3-Coder-30B-A3B-Instruct", 30.5, _kv(48, 4, 128)), None, "qwen", _APACHE
    ),
    KnownPair(
        "starcoder2-7b",
        KnownModel("bigcode/starcoder2-7b", 7.17, _kv(32, 4, 128)),
        _STARCODER2_3B,
        "starcoder2",
        _OPEN_RAIL,
    ),
    KnownPair(
        "starcoder2-15b",
        KnownModel("bigcode/starcoder2-15b", 16.0, _kv(40, 4, 128)),
        _STARCODER2_3B,
        "starcoder2",
        _OPEN_RAIL,
    ),
    KnownPair(
        "deepseek-coder-6.7b",
        KnownModel("deepseek-ai/deepseek-coder-6.7b-base", 6.74, _kv(32, 32, 128)),
        _DEEPSEEK_1B,
        "deepseek",
        _DEEPSEEK,
    ),
    KnownPair(
        "deepseek-coder-33b",
        KnownModel("deepseek-ai/deepseek-coder-33b-base", 33.3, _kv(62, 8, 128)),
        _DEEPSEEK_1B,
        "deepseek",
        _DEEPSEEK,
    ),
    KnownPair(  # the 34B was not trained to fill in and has no markers
        "codellama-13b",
        KnownModel("codellama/CodeLlama-13b-hf", 13.0, _kv(40, 40, 128)),
        KnownModel("codellama/CodeLlama-7b-hf", 6.74, _kv(32, 32, 128)),
        "codellama",
        "Llama 2",
    ),
    KnownPair(
        "codegemma-7b",
        KnownModel("google/codegemma-7b", 8.54, _kv(28, 16, 256)),
        KnownModel("google/codegemma-2b", 2.51, _kv(18, 1, 256)),
        "codegemma",
        "Gemma",
    ),
    *(
        KnownPair(f"granite-code-{size}", KnownModel(model, *cost), _GRANITE_3B, "starcoder", _APACHE)
        for size, model, cost in (
            ("8b", "ibm-granite/granite-8b-code-base-128k", (8.05, _kv(36, 8, 128))),
            ("20b", "ibm-granite/granite-20b-code-base-8k", (20.1, _kv(52, 1, 128))),
            ("34b", "ibm-granite/granite-34b-code-base-8k", (33.7, _kv(88, 1, 128))),
        )
    ),
    KnownPair(
        "codestral-22b", KnownModel("mistralai/Codestral-22B-v0.1", 22.2, _kv(56, 8, 128)), None, "codestral", "MNPL"
    ),
    KnownPair(
        "seed-coder-8b",
        KnownModel("ByteDance-Seed/Seed-Coder-8B-Base", 8.25, _kv(32, 8, 128)),
        None,
        "seed-coder",
        "MIT",
    ),
    KnownPair("mellum-4b", KnownModel("JetBrains/Mellum-4b-base", 4.02, _kv(30, 24, 128)), None, "mellum", _APACHE),
)


def known_pair(name: str) -> KnownPair:
    """The pair of that name; raises ConfigError that lists the names."""
    for pair in KNOWN_PAIRS:
        if pair.name == name:
            return pair
    names = ", ".join(pair.name for pair in KNOWN_PAIRS)
    raise ConfigError("pair", f"{name!r} is unknown; use {AUTO} or one of {names}")


def fitting(gigabytes: float) -> list[KnownPair]:
    """The pairs to download or load that fit in so much memory with a tenth to spare, best first: the larger target."""
    pairs = [pair for pair in KNOWN_PAIRS if pair.name != EMBEDDED and 1.1 * pair.memory_gb <= gigabytes]
    return sorted(pairs, key=lambda pair: -pair.target.billions)
