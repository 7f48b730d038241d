"""Shows or removes what the draft model has learned on this machine (--adapt, or the setting specter.adaptation)."""

from __future__ import annotations

import argparse

from lsp_server.commands import UserError

SUMMARY = "show or remove what the draft model has learned here"


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show what there is; so does no option at all")
    what.add_argument("--remove", action="store_true", help="remove all of it")


def run(arguments: argparse.Namespace) -> int:
    from engine.adaptation import store

    try:
        lines = [f"removed {path}" for path in store.remove()] if arguments.remove else _status()
    except OSError as error:
        raise UserError(f"{store.folder()} cannot be used ({error.strerror}); check its owner and mode") from None
    print("\n".join(lines) or f"nothing has been learned: there is no file in {store.folder()}")
    return 0


def _status() -> list[str]:
    from engine.adaptation import store

    pair, lines = store.embedded_pair(), list[str]()
    for kept in store.kept():
        trouble = kept.trouble or ("" if kept.path.name.startswith(pair[:16]) else "for another pair")
        what = f"not used: {trouble}" if trouble else f"agreed with the target in {kept.after} of {kept.places} places"
        before = "" if trouble else f", in {kept.before} before"
        lines.append(f"{kept.path} ({kept.bytes / 1e6:.1f} MB) {what}{before}")
    return lines
