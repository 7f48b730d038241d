"""Where a training's result and its state go, looked at before anything is loaded. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from engine.config import ConfigError


def state_path(out: Path) -> Path:
    """The state of a training that is not at its end."""
    return out.with_name(out.name + ".training")


def require_place(out: Path, resume: bool) -> None:
    """Raises ConfigError unless the result can be written, and the state of an earlier training is as said."""
    if not out.name:
        raise ConfigError("out", f"{out} is no name for a file; give one")
    state = state_path(out)
    try:
        there, begun = out.exists(), state.exists()
        _touch(state.with_name(state.name + ".part"))
    except OSError as error:
        raise unwritable(out, error) from None
    if there:
        raise ConfigError("out", f"{out} exists already; choose another name or remove it")
    if resume and not begun:
        raise ConfigError("resume", f"{state} does not exist; leave out --resume to begin anew")
    if not resume and begun:
        raise ConfigError("out", f"{state} is an interrupted training; go on with --resume, or remove it")


def unwritable(out: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError("out", f"{out} cannot be written ({reason}); free some space or choose another place")


def _touch(path: Path) -> None:
    path.touch()
    path.unlink()
