"""Lists the known pairs: memory, fill-in-the-middle format, licence, and whether the models are on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from engine.config import EMBEDDED
from engine.download import DownloadError, download
from engine.local_models import is_here, presence
from engine.pairs import KNOWN_PAIRS, KnownModel, KnownPair, known_pair
from lsp_server.commands import UserError

SUMMARY = "list the known target/draft pairs"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--download", metavar="NAME", help="fetch that pair's models from huggingface.co and leave")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.download is not None:
        return _download(known_pair(arguments.download))
    if arguments.json:
        print(json.dumps({"pairs": [_document(pair) for pair in KNOWN_PAIRS]}))
        return 0
    print(f"{'PAIR':22}{'MEMORY':>8}  {'FIM FORMAT':20}LICENCE")
    for pair in KNOWN_PAIRS:
        print("\n" + "\n".join(_lines(pair)))
    print("\nMemory: both models' weights in bfloat16, and their caches at 8,192 tokens.")
    print("`specter complete --pair NAME …` uses one; `--pair auto` the best here that fits")
    print("the GPU. What is not here comes from huggingface.co the first time.")
    return 0


def _download(pair: KnownPair) -> int:
    shows = sys.stderr.isatty()

    def show(fraction: float, message: str) -> None:
        if shows:
            print(f"\r\x1b[K{fraction:4.0%} {message}", end="", file=sys.stderr, flush=True)

    if not is_here(pair):
        try:
            download(pair, show)
        except DownloadError as error:
            raise UserError(f"{pair.name}: {error}") from None
        finally:
            if shows:
                print(file=sys.stderr)
    print(f"{pair.name} is on this machine")
    return 0


def _lines(pair: KnownPair) -> list[str]:
    lines = [f"{pair.name:22}{pair.memory_gb:>5.2f} GB  {pair.fim:20}{pair.licence}"]
    for role, model in _roles(pair):
        name, where = ("none", "") if model is None else (model.id, _presence(pair, model))
        lines.append(f"  {role:8}{name:40}{where}".rstrip())
    return lines


def _document(pair: KnownPair) -> dict[str, Any]:
    """`here`: whether nothing would have to be downloaded."""
    models = {
        role: None
        if model is None
        else {"model": model.id, "parameters": round(model.billions * 1e9), "presence": _presence(pair, model)}
        for role, model in _roles(pair)
    }
    memory = round(pair.memory_gb, 2)
    return {
        "name": pair.name,
        **models,
        "fim": pair.fim,
        "memoryGb": memory,
        "licence": pair.licence,
        "here": is_here(pair),
    }


def _roles(pair: KnownPair) -> tuple[tuple[str, KnownModel | None], ...]:
    return ("target", pair.target), ("draft", pair.draft)


def _presence(pair: KnownPair, model: KnownModel) -> str:
    return "on this machine" if pair.name == EMBEDDED else presence(model.id)
