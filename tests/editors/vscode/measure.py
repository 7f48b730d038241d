"""Measures the time from a key to the first ghost text on the screen.

`python tests/editors/vscode/measure.py [SAMPLES]`, on a machine that does nothing else; the last line of stdout is
JSON.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import vscode_tools as tools

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="specter-vscode-") as name:
        folder = Path(name)
        done = tools.node("measure.mjs", folder / "run", *sys.argv[1:2], env=tools.prepare(folder / "vscode"))
        print(done.stderr, file=sys.stderr, end="")
        print(done.stdout, end="")
        sys.exit(done.returncode)
