"""Trains a drafter for the target at hand on a folder of source: a small draft model distilled from it, multi-token
heads, or an EAGLE head. Can be interrupted and gone on with (--resume). Nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server.commands import UserError
from lsp_server.commands.options import add_engine_options, engine_config, whole
from lsp_server.commands.terminal import load_pair
from lsp_server.exclusions import complaint

if TYPE_CHECKING:  # torch takes seconds to import
    from engine.config import EngineConfig
    from engine.loading import LoadedPair
    from engine.training.examples import Examples
    from engine.training.loop import Order, Recipe, Report

SUMMARY = "train a draft, heads or an EAGLE head on your own files"

_STEPS = 1000
_MOST_FILES, _MOST_TEXT = 20_000, 100_000_000  # characters; a sample of more would teach no more
_INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("draft", "heads", "eagle"), help="what to train")
    parser.add_argument("folder", metavar="DIR", type=Path, help="source files to learn from; secrets are left out")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="a new file, for a draft a new folder")
    parser.add_argument("--steps", type=whole, default=_STEPS, metavar="N", help=f"how long; {_STEPS} by default")
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted training of OUT")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="files to leave out, as in .gitignore"
    )
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = engine_config(arguments)
    if arguments.steps < 1:
        raise UserError(f"--steps {arguments.steps} is too few; use 1 or more")
    for glob in arguments.exclude:
        if wrong := complaint(glob):
            raise UserError(f"--exclude: {wrong}")
    if not arguments.folder.is_dir():
        raise UserError(f"{arguments.folder} is no folder; give the folder of a project's source files")
    from engine.training.place import require_place

    require_place(arguments.out, arguments.resume)
    pair = load_pair(config.replace(draft="none", drafter="none", heads=None, eagle=None))
    from engine.training.examples import Examples
    from engine.training.loop import Order, train

    try:
        examples = Examples(pair, _texts(arguments.folder, arguments.exclude))
    except ValueError as error:
        raise UserError(f"{arguments.folder}: {error}") from None
    recipe, belongs = _recipe(arguments.what, pair, config, examples, arguments.steps)
    order = Order(arguments.steps, arguments.out, arguments.resume, {**belongs, "number of steps": arguments.steps})
    with _leaving() as left, _bar(order) as report:
        done = train(recipe, order, report, lambda: bool(left))
    if not done:
        print(f"interrupted; the same command with --resume goes on from {arguments.out}.training")
        return _INTERRUPTED
    option = "--draft" if arguments.what == "draft" else f"--drafter {arguments.what} --{arguments.what}"
    print(f"wrote {arguments.out}, from {examples.files} files; `specter complete {option} {arguments.out} …`")
    return 0


def _texts(folder: Path, globs: list[str]) -> dict[str, str]:
    """What may be shown to a model, as the server sees it: no secrets, nothing that the user excludes, no installed
    packages, whatever links lead to."""
    from lsp_server.context.indexing import source_files
    from lsp_server.context.workspace import Files, Workspace

    root, files, texts, size = folder.resolve(), Files(), dict[str, str](), 0
    workspace = Workspace((root.as_uri(),), tuple(globs))
    for path in islice(source_files((root,)), _MOST_FILES):
        text = files.read(path, workspace)
        if text is not None:
            texts[path.relative_to(root).as_posix()] = text
            size += len(text)
        if size > _MOST_TEXT:
            break
    return texts


def _recipe(
    what: str, pair: LoadedPair, config: EngineConfig, examples: Examples, steps: int
) -> tuple[Recipe, dict[str, str]]:
    """What is trained, and what a training that is gone on with must have in common with it."""
    from engine.identity import identity

    belongs = {"kind": what, "target": identity(pair.target_source), "source files": examples.fingerprint}
    if what == "heads":
        from engine.training.heads import HeadsRecipe

        return HeadsRecipe(pair.target, examples, belongs["target"], pair.name, steps), belongs
    if what == "eagle":
        from engine.training.eagle import EagleRecipe

        return EagleRecipe(pair.target, examples, belongs["target"], pair.name, steps), belongs
    from engine.sources import sources
    from engine.training.draft import DraftRecipe, beginning

    start = sources(config.replace(drafter="merged")).draft
    return DraftRecipe(pair, examples, beginning(pair, start), steps), {**belongs, "draft": str(start)}


@contextmanager
def _leaving() -> Iterator[list[int]]:
    """Signals that ask to end, so that the step at hand can be finished and kept; at the second one, at once."""
    got = list[int]()

    def take(number: int, frame: object) -> None:
        if got:
            raise KeyboardInterrupt
        got.append(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar(order: Order) -> Iterator[Report]:
    """On a terminal's stderr; nothing of it reaches a pipe or a file."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("training", total=order.steps)

        def report(step: int, loss: float, right: float) -> None:
            progress.update(task, completed=step, description=f"loss {loss:.3f}, right {right:.0%}")

        yield report
