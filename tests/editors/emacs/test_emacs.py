"""Emacs with eglot, which knows no inline completion, against the real server on the embedded pair."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_README = _HERE.parents[2] / "README.md"
_BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.editors, pytest.mark.timeout(600)]

_LINE = """import json


def read_settings(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_users(path):
    with open("""

_BLOCK = '''class Rectangle:
    """A rectangle with a width and a height."""

    def __init__(self, width, height):
        '''


@pytest.fixture(scope="module")
def emacs() -> str:
    subprocess.run([_HERE.parent / "get_emacs.sh"], check=True)
    return "emacs"


@pytest.mark.parametrize(("text", "lines"), [(_LINE, 1), (_LINE + "pa", 1), (_BLOCK, 2)])
def test_the_readmes_settings_complete(text: str, lines: int, emacs: str, tmp_path: Path) -> None:
    """What Emacs writes is what `specter complete` says, of one line and of several, behind half a word as well.

    Seen to fail with the label of an item where its edit should be.
    """
    file = tmp_path / "code.py"
    file.write_text(text, "utf-8")
    environment = os.environ | {"PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    before = text.split("\n")
    place = f"{file}:{len(before)}:{len(before[-1]) + 1}"
    said = subprocess.run(
        [_BIN / "specter", "complete", place], capture_output=True, text=True, env=environment, check=True
    ).stdout
    script = [emacs, "--batch", "-l", _HERE / "complete.el", file, _README]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert said.strip()
    assert file.read_text("utf-8").rstrip("\n") == (text + said).rstrip("\n"), done.stderr
    assert len(said.strip().split("\n")) >= lines
