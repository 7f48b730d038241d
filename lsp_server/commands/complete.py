"""Completes at a cursor and streams the text to stdout as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server import context
from lsp_server.commands import place
from lsp_server.commands.options import add_engine_options, engine_config
from lsp_server.commands.terminal import load_pair
from lsp_server.settings import Settings
from lsp_server.shape import Shape

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.record import Completion
    from engine.request import CompletionRequest

SUMMARY = "complete at a place in a file"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place", metavar="FILE:LINE:COL", help="the cursor, from 1; the line's length + 1 is the end of the line"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with text and measurements instead")
    parser.add_argument("--raw", action="store_true", help="the model's own text: not trimmed, not ended with the line")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = engine_config(arguments)
    request = _request(place.parse(arguments.place), config)
    shape = None
    if not arguments.raw:
        request, shape = context.shaped(request, "", Settings())
    pair = load_pair(config)
    show = _ignore if arguments.json else _write
    completion = _complete(pair, request, shape, show)
    if arguments.json:
        print(json.dumps(completion.to_json()))
    elif sys.stdout.isatty():
        print()  # a pipe gets the text alone
    return 0


def _request(cursor: place.Place, config: EngineConfig) -> CompletionRequest:
    """What the server would ask at this place with its default settings, but with all the time it takes."""
    file, here = cursor.path.absolute(), Path.cwd()
    folder = here if file.is_relative_to(here) else file.parent
    request = context.build(place.snapshot(cursor), [folder.as_uri()], Settings(), config)
    return replace(request, deadline_s=None)


def _complete(
    pair: LoadedPair, request: CompletionRequest, shape: Shape | None, show: Callable[[str], None]
) -> Completion:
    """Shows each piece of the text once it is certain; the completion's text is what was kept of it.

    What is printed cannot be taken back. It need not be: of a longer text, the shape keeps an extension of what it
    keeps of a shorter one. Should a rule ever break that promise, what stands there stays and nothing is added to it.
    """
    from engine.generation import generate

    text = shown = ""
    with closing(generate(pair, request, pair.drafter())) as chunks:
        for chunk in chunks:
            text += chunk.text
            done = chunk.completion is not None
            kept = text if shape is None else shape.shown(text, finished=done)
            if kept.startswith(shown):
                show(kept[len(shown) :])
                shown = kept
    assert chunk.completion is not None
    return replace(chunk.completion, text=kept)


def _write(piece: str) -> None:
    if piece:
        sys.stdout.write(piece)
        sys.stdout.flush()


def _ignore(piece: str) -> None:
    """The object at the end has it all."""
