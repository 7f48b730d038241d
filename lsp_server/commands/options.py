"""The engine options that every command shares, and what they make of EngineConfig."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from engine.config import Device, DrafterName, Dtype, EngineConfig
from engine.request import Mode


class _Option(NamedTuple):
    """One field of EngineConfig. `convert` checks the form only: which values are possible, EngineConfig says."""

    metavar: str
    convert: Callable[[str], object]
    help: str


def whole(text: str) -> int:
    """Converts an argument; argparse names the option."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _length(text: str) -> int | str:
    return text if text == "auto" else whole(text)


def _choices(literal: Any) -> str:
    return "|".join(get_args(literal))


_IMPLIES = "implies --mode sampled unless --mode is given"
_OPTIONS = {
    "pair": _Option("NAME", str, "a known pair, see `specter pairs`, or auto; the embedded one by default"),
    "target": _Option("PATH_OR_ID", str, "the large model: a checkpoint folder, a GGUF file or a model id"),
    "draft": _Option("PATH_OR_ID|none", str, "the small model; none decodes plainly"),
    "device": _Option(_choices(Device), str, "where the models run"),
    "dtype": _Option(_choices(Dtype), str, "the numbers they compute in"),
    "drafter": _Option(_choices(DrafterName), str, "where guesses come from"),
    "mode": _Option(_choices(Mode), str, "the likeliest token, or one drawn by its probability; greedy by default"),
    "temperature": _Option("T", _number, _IMPLIES),
    "top_p": _Option("P", _number, _IMPLIES),
    "top_k": _Option("K", whole, _IMPLIES),
    "min_p": _Option("P", _number, _IMPLIES),
    "seed": _Option("N", whole, "makes sampled text repeatable"),
    "max_tokens": _Option("N", whole, "the longest completion"),
    "draft_length": _Option("auto|N", _length, "guesses a cycle"),
    "heads": _Option("FILE", str, "trained heads for --drafter heads and blockwise, see `specter train heads`"),
    "eagle": _Option("FILE", str, "a trained head for --drafter eagle, see `specter train eagle`"),
    "cache_mb": _Option("auto|N", _length, "memory for documents completed before, in megabytes; 128, on a GPU 2048"),
    "server_url": _Option(
        "URL", str, "have a server compute, as in http://127.0.0.1:8000; --pair answers while it is down"
    ),
    "server_model": _Option("NAME", str, "the server's model, if it has several"),
    "server_key_file": _Option("FILE", str, "holds the server's key; SPECTER_SERVER_KEY does otherwise"),
    "server_tokenizer": _Option("PATH_OR_ID", str, "the server's model's tokenizer: prompts are sent as its ids"),
}
_ADAPTATION = "adaptation"
_OF_SAMPLING = ("temperature", "top_p", "top_k", "min_p")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds them as a group; those that are not given leave no trace in the namespace."""
    group = parser.add_argument_group("engine options")
    for name, option in _OPTIONS.items():
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=option.metavar,
            type=option.convert,
            help=option.help,
            default=argparse.SUPPRESS,
        )
    group.add_argument(
        "--adapt",
        dest=_ADAPTATION,
        action="store_true",
        help="the draft model learns while the engine is idle, see `specter adaptation`",
        default=argparse.SUPPRESS,
    )


def overrides(arguments: argparse.Namespace) -> dict[str, object]:
    """The fields of EngineConfig that the command line sets."""
    given = {name: value for name, value in vars(arguments).items() if name in (*_OPTIONS, _ADAPTATION)}
    if "mode" not in given and any(name in given for name in _OF_SAMPLING):
        given["mode"] = "sampled"  # a temperature without effect would surprise more
    return given


def engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """The configuration that the command line asks for. Raises ConfigError."""
    return EngineConfig.of(overrides(arguments))
