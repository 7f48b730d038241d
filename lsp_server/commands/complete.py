"""Completes at a cursor and streams the text to stdout as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server import context
from lsp_server.commands import place
from lsp_server.commands.options import add_engine_options, engine_config
from lsp_server.commands.serving import Serving
from lsp_server.commands.terminal import load_pair
from lsp_server.context.live import MOST, Wanted
from lsp_server.context.selection import select
from lsp_server.context.sources import Open, candidates
from lsp_server.context.workspace import Files, Workspace
from lsp_server.documents import Snapshot, split_lines
from lsp_server.settings import Settings
from lsp_server.shape import Shape

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.record import Completion
    from engine.request import Chunk, CompletionRequest, Snippet

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
    snapshot, folder = _at(place.parse(arguments.place))
    # What the server would ask at this place with its default settings, but with all the time it takes.
    request = replace(context.build(snapshot, [folder], Settings(), config), deadline_s=None)
    shape = None
    if not arguments.raw:
        shape = context.shape(request, "", Settings())
        request = context.ending(request, shape)
    show = _ignore if arguments.json else _write
    if config.server_url is not None:
        with Serving(config) as serving:
            room = serving.engine.prompt_room(config.max_tokens) if serving.engine.reads_other_files else 0
            request = replace(request, snippets=_other_files(room, snapshot, folder))
            completion = _complete(serving.stream(request), shape, show)
    else:
        pair = load_pair(config)
        request = replace(request, snippets=_other_files(_room(pair, config), snapshot, folder))
        completion = _complete(_generate(pair, request), shape, show)
    if arguments.json:
        print(json.dumps(completion.to_json()))
    elif sys.stdout.isatty():
        print()  # a pipe gets the text alone
    return 0


def _at(cursor: place.Place) -> tuple[Snapshot, str]:
    """The file with its cursor, and the folder (its uri) that is its workspace."""
    file, here = cursor.path.absolute(), Path.cwd()
    return place.snapshot(cursor), (here if file.is_relative_to(here) else file.parent).as_uri()


def _room(pair: LoadedPair, config: EngineConfig) -> int:
    """Tokens of the longest prompt; 0 for a model that was not trained to read other files."""
    from engine.generation import prompt_room

    return prompt_room(pair, config.max_tokens) if pair.reads_other_files else 0


def _generate(pair: LoadedPair, request: CompletionRequest) -> Generator[Chunk, None, None]:
    from engine.generation import generate

    return generate(pair, request, pair.drafter())


def _other_files(room: int, snapshot: Snapshot, folder: str) -> tuple[Snippet, ...]:
    """Definitions of what the file imports, for a prompt of `room` tokens. No file is open here."""
    if not room:
        return ()
    wanted = Wanted.within(room, MOST, True, Workspace((folder,)))
    lines = split_lines(snapshot.prefix + snapshot.suffix)
    view = wanted.view(Open(snapshot.uri, lines), snapshot.prefix.count("\n"))
    return tuple(context.snippets(select((), candidates(view, Files()), wanted.most, wanted.budget)))


def _complete(stream: Generator[Chunk, None, None], shape: Shape | None, show: Callable[[str], None]) -> Completion:
    """Shows each piece of the text once it is certain; the completion's text is what was kept of it.

    What is printed cannot be taken back. It need not be: of a longer text, the shape keeps an extension of what it
    keeps of a shorter one. Should a rule ever break that promise, what stands there stays and nothing is added to it.
    """
    text = shown = ""
    with closing(stream) as chunks:
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
