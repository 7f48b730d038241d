"""Any Hugging Face checkpoint or GGUF file as a model; every failure is one line with the key and the fix.

Imported only when one is asked for: transformers' modelling code takes 2.3 of the 5.7 s that a start would take.
"""

from __future__ import annotations

import json
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from engine import embedded
from engine.config import ConfigError, MemoryShortError
from engine.joined import can_join
from engine.model import CachedModel, vocabulary_size
from engine.prompt import Tokenizer
from engine.runners import Runner
from engine.sources import FIX, locate
from engine.static_runner import StaticRunner
from engine.transformers_runner import TransformersRunner, UnsupportedModelError


def load_checkpoint(
    key: Literal["target", "draft"], source: str, device: torch.device, dtype: torch.dtype
) -> tuple[CachedModel, Tokenizer, tuple[int, ...]]:
    """The model `source` (a folder, a .gguf file or an id), its tokenizer, and the ids that its generation_config.json
    says to stop at. Raises ConfigError about `key`."""
    folder, options = locate(key, source)
    try:
        tokenizer = _tokenizer(folder, options)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they are in `info`, with their names
            **options,
        )
        _require_complete(info)
        vocab = _vocabulary_size(tokenizer)
        _require_rows(model, vocab)
        runner = runner_of(model.to(device))
        _require_numbers(runner)
    except UnsupportedModelError as error:
        raise ConfigError(key, f"{source}: {error}; choose a model with attention only") from None
    except torch.cuda.OutOfMemoryError:
        raise MemoryShortError(key, f"{source} does not fit the GPU's memory; choose a smaller pair") from None
    except Exception as error:  # transformers and its parsers raise whatever they like at a damaged file
        raise ConfigError(key, f"{source} cannot be loaded: {_reason(error)}; {FIX}") from error
    return CachedModel(runner, vocab), cast(Tokenizer, tokenizer), _stop_ids(model)


def load_embedded(role: embedded.Role, device: torch.device, dtype: torch.dtype) -> tuple[CachedModel, Tokenizer]:
    """The embedded model where the lean forward does not run it."""
    runner, tokenizer = runner_of(embedded_model(role, dtype).to(device)), embedded.tokenizer()
    return CachedModel(runner, vocabulary_size(tokenizer.get_vocab())), tokenizer


def embedded_model(role: embedded.Role, dtype: torch.dtype) -> Any:
    """The embedded target or draft as transformers runs it."""
    config = AutoConfig.from_pretrained(embedded.FOLDER / role)
    # Not through AutoModel, which wants a name to look up.
    return LlamaForCausalLM.from_pretrained(None, config=config, state_dict=embedded.weights(role), dtype=dtype).eval()


def runner_of(model: Any) -> Runner:
    """What runs it best where it is. Raises UnsupportedModelError for a model that cannot take a guess back."""
    return StaticRunner(model) if model.device.type == "cuda" and can_join(model) else TransformersRunner(model)


def _tokenizer(folder: str, options: dict[str, Any]) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, **options)
    except _INTERNAL as error:
        raise ValueError("its config.json or its tokenizer's files are damaged") from error


def _require_complete(info: dict[str, Any]) -> None:
    """transformers only warns of parameters that a checkpoint lacks, and goes on with random ones."""
    mismatched = (name for name, *_ in info.get("mismatched_keys", ()))
    missing = sorted({*info.get("missing_keys", ()), *mismatched, *info.get("error_msgs", ())})
    if missing:
        are = "1 parameter is" if len(missing) == 1 else f"{len(missing)} parameters are"
        raise ValueError(f"{are} missing or of the wrong shape, such as {missing[0]}")


def _vocabulary_size(tokenizer: Any) -> int:
    """Without CodeLlama's `<FILL_ME>`: transformers adds it, to split texts at it, with an id that has no row."""
    fill = getattr(tokenizer, "fill_token", None)
    return vocabulary_size({name: token for name, token in tokenizer.get_vocab().items() if name != fill})


def _stop_ids(model: Any) -> tuple[int, ...]:
    """One, several or none."""
    stop = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return tuple(stop) if isinstance(stop, list) else () if stop is None else (stop,)


def _require_rows(model: Any, vocab: int) -> None:
    """A token without a row would fail in the middle of a completion, on a GPU for good."""
    rows = model.get_input_embeddings().weight.shape[0]
    if rows < vocab:
        raise ValueError(f"its tokenizer has {vocab} tokens but its embedding only {rows} rows")


def _require_numbers(runner: Runner) -> None:
    """Weights that are not numbers load without a word, and fail at the first token."""
    if not bool(runner.forward([0, 1], 0, 1).isfinite().all()):
        raise ValueError("its weights are damaged: what it computes are not numbers")


# What a parser trips over when a file holds something else than it should; the message means nothing to a user.
_INTERNAL = (KeyError, IndexError, TypeError, AttributeError)
_LONGEST = 200  # characters of a message
_IN_OUR_WORDS = (
    ("Unrecognized configuration class", "it is no causal language model"),
    ("no file named model.safetensors", "it has no weights (model.safetensors)"),
    ("does not recognize this architecture", "this transformers does not know its architecture; a newer one may"),
    ("cannot mmap an empty file", "the file is empty"),
)


def _reason(error: Exception) -> str:
    """The first line of a message, without the advice that follows it; of known ones, what they mean."""
    if isinstance(error, SafetensorError):
        return "its weights are cut short or damaged; fetch them again"
    if isinstance(error, json.JSONDecodeError):
        return f"a file in it is not valid JSON ({error.msg}, line {error.lineno})"
    if isinstance(error, _INTERNAL):
        return "its config.json or another of its files is damaged"
    first = str(error).strip().split("\n")[0].rstrip(".")
    for theirs, ours in _IN_OUR_WORDS:
        if theirs in first:
            return ours
    return (first if len(first) <= _LONGEST else first[:_LONGEST].rsplit(" ", 1)[0] + " …") or type(error).__name__
