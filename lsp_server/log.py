"""Where log lines go: our own, to stderr, from the level that SPECTER_LOG names."""

from __future__ import annotations

import logging
import os
import sys

LEVELS = ("debug", "info", "warning", "error")


def set_up() -> None:
    """SPECTER_LOG=debug also shows tracebacks. Other libraries' lines are warnings at most: theirs may quote code."""
    level = os.environ.get("SPECTER_LOG", "").lower()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="specter: %(levelname)s %(name)s: %(message)s")
    for package in ("engine", "lsp_server"):
        logging.getLogger(package).setLevel(level.upper() if level in LEVELS else logging.WARNING)


def debugging() -> bool:
    return os.environ.get("SPECTER_LOG", "").lower() == "debug"
