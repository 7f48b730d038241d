"""Measures plain and speculative decoding side by side, on holes cut from real source files."""

from __future__ import annotations

import argparse

from engine.bench import options
from lsp_server.commands.options import add_engine_options, engine_config

SUMMARY = "measure speculative against plain decoding"


def configure(parser: argparse.ArgumentParser) -> None:
    options.add_options(parser)
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    options.run(arguments, engine_config(arguments))
    return 0
