"""The command line: finds the command, runs it, and turns whatever happens into an exit code and at most one line.

0 done; 2 the user's mistake, named with its fix; 1 ours; 130 interrupted. Imports no torch, so that `serve` answers
an editor at once.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, Protocol, TextIO, cast

from engine.config import ConfigError
from lsp_server import log
from lsp_server.commands import UserError

COMMANDS = (
    "complete",
    "demo",
    "serve",
    "doctor",
    "bench",
    "evaluate",
    "prove",
    "train",
    "pairs",
    "export",
    "adaptation",
)

DONE, OURS, USERS, INTERRUPTED = 0, 1, 2, 130
_FULL = "no space is left where the output goes; free some and try again"
_UNWRITABLE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EBADF: "stdout is closed; leave it open, or send it to a file or a pipe",
}


class Command(Protocol):
    """A module of lsp_server.commands."""

    SUMMARY: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Returns the exit code. Raises UserError or ConfigError for the user's mistakes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    _set_up()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # a reader that has gone is noticed here, not in the interpreter's last breath
        return code
    except (UserError, ConfigError) as error:
        return _fail(_described(error), USERS)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has what it wanted
        _forget(sys.stdout)
        return DONE
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            return _internal(error)
        _forget(sys.stdout)
        return _fail(_UNWRITABLE[error.errno], USERS)
    except Exception as error:
        return _internal(error)


def _set_up() -> None:
    _open_closed()
    log.set_up()
    if not log.debugging():
        warnings.simplefilter("ignore")  # of libraries, about things that no user can change
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one prompt at a time gains nothing from threads
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without the character shows another; nothing dies


def _run(argv: list[str]) -> int:
    commands = {name: cast(Command, import_module(f"lsp_server.commands.{name}")) for name in COMMANDS}
    parser, parsers = _parsers(commands)
    if argv and argv[0] not in ("-h", "--help", "--version"):
        _require_command(argv[0], parsers)
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except SystemExit:  # after --help
        return DONE
    if arguments.version:
        print(f"specter {_version()}")
        return DONE
    if arguments.command is None:
        raise UserError(f"no command given; use one of {', '.join(COMMANDS)}, as in `specter demo`")
    if unknown:
        raise UserError(_unknown(unknown, arguments.command, parsers[arguments.command]))
    return commands[arguments.command].run(arguments)


class _Parser(argparse.ArgumentParser):
    """A mistake is one line, not a usage text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        line = re.sub(r"^argument (-\S+/)?", "", message)
        raise UserError(f"{line}; see `{self.prog} --help`")


def _parsers(commands: dict[str, Command]) -> tuple[_Parser, dict[str, _Parser]]:
    """The whole parser, and that of each command."""
    parser = _Parser(
        prog="specter",
        description="Code completion by a large model at the speed of a small one, on this machine.",
        epilog="`specter COMMAND --help` lists a command's options.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    parsers = {}
    for name, command in commands.items():
        parsers[name] = subparsers.add_parser(name, help=command.SUMMARY, description=command.__doc__)
        command.configure(parsers[name])
    return parser, parsers


def _require_command(word: str, parsers: dict[str, _Parser]) -> None:
    if word in parsers:
        return
    if word.startswith("-"):
        takers = [name for name, parser in parsers.items() if word in parser._option_string_actions]
        fix = f"put it behind the command, as in `specter {takers[0]} {word} …`" if takers else "see `specter --help`"
        raise UserError(f"{word} is no option of specter itself; {fix}")
    near = difflib.get_close_matches(word, parsers, n=1)
    fix = f"did you mean `specter {near[0]}`?" if near else f"use one of {', '.join(parsers)}"
    raise UserError(f"{word!r} is no command; {fix}")


def _unknown(words: list[str], command: str, parser: _Parser) -> str:
    """Says what could not be placed; an option before a word, which may have been the option's value."""
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return f"{words[0]!r} is one argument too many; see `specter {command} --help`"
    near = difflib.get_close_matches(option, parser._option_string_actions, n=1)
    fix = f"did you mean {near[0]}?" if near else f"see `specter {command} --help`"
    return f"{option} is no option of `specter {command}`; {fix}"


def _described(error: Exception) -> str:
    """An engine's key under the name of its option."""
    message = " ".join(str(error).split())
    if isinstance(error, ConfigError):
        return f"--{error.key.replace('_', '-')}{message.removeprefix(error.key)}"
    return message


def _fail(line: str, code: int) -> int:
    try:
        print(f"specter: {line}", file=sys.stderr, flush=True)
    except OSError:
        _forget(sys.stderr)
    return code


def _internal(error: Exception) -> int:
    """Its message might quote the user's code, so only its type is shown."""
    if log.debugging():
        traceback.print_exception(error)
    return _fail(f"internal error ({type(error).__name__}); SPECTER_LOG=debug shows the traceback", OURS)


def _open_closed() -> None:
    """A standard stream that the caller has closed (`>&-`): Python has None for it, and the next file that is opened
    would get its number. Reads end at once, what goes to stderr is lost, and writing to stdout is an error."""
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:  # in this order each gets its own number, the lowest that is free
            fd = os.open(os.devnull, flags)
            setattr(sys, name, open(fd, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole process


def _forget(stream: TextIO) -> None:
    """What is still in its buffer would fail once more when the interpreter ends."""
    with suppress(OSError, ValueError):  # a stream without a number
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _version() -> str:
    from importlib.metadata import version

    return version("specter-ls")
