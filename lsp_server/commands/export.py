"""Writes the embedded pair as plain Hugging Face checkpoints, in float32."""

from __future__ import annotations

import argparse
from pathlib import Path

from lsp_server.commands import UserError

SUMMARY = "write the embedded pair as Hugging Face folders"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="gets the folders DIR/target and DIR/draft")


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    targets = [folder / role for role in ("target", "draft")]
    for path in targets:  # both, before anything is written
        if path.exists():
            raise UserError(f"{path} exists already; choose another folder or remove it")
    from engine import embedded

    try:
        embedded.export(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); choose another folder") from None
    print(f"wrote {targets[0]} and {targets[1]}; `specter complete --target {targets[0]} --draft {targets[1]} …`")
    return 0
