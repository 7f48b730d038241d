"""Neovim as users have it: the Lua tests, and a person's keys in a real terminal with the real server."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvim_install import PLUGIN, SPECTER, lua_files, neovim, stylua
from nvim_terminal import Terminal

pytestmark = [pytest.mark.editors, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_CORE = [pytest.param(version, marks=pytest.mark.core) for version in ("0.12", "0.11")]

_SHAPES = '''class Rectangle:
    """A rectangle with a width and a height."""

    def __init__(self, width, height):
'''


def _lua(version: str, spec: str) -> None:
    """Run one file of Lua tests; its output is the failure's text."""
    nvim = neovim(version)
    command = [nvim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "-l", "run.lua", f"specs/{spec}.lua"]
    environment = os.environ | {"NVIM": str(nvim), "SPECTER": str(SPECTER), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=_HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("spec", ["ghost", "accept", "life"])
@pytest.mark.parametrize("version", [*_CORE, "0.10"])
def test_with_a_scripted_server(version: str, spec: str) -> None:
    _lua(version, spec)


# The plugins are on no package registry, so this suite cannot install them: it takes them from folders that are named.
@pytest.mark.skipif(not os.environ.keys() & {"NVIM_CMP", "BLINK_CMP"}, reason="NVIM_CMP and BLINK_CMP name no folder")
def test_completion_plugins() -> None:
    _lua("0.12", "menus")


@pytest.mark.parametrize("version", _CORE)
def test_commands_with_the_real_server(version: str) -> None:
    _lua(version, "real")


def test_lua_is_formatted() -> None:
    files = lua_files()
    done = subprocess.run([*stylua(), "--check", *files], capture_output=True, text=True, check=False)
    assert len(files) > 20
    assert done.returncode == 0, (
        f"python tests/editors/neovim/nvim_install.py formats these:\n{done.stdout}{done.stderr}"
    )


_USER = """
vim.o.packpath = {site} .. ',' .. vim.o.packpath
{before}
local bundled = vim.api.nvim_get_runtime_file('lua/specter/init.lua', true)
assert(#bundled == 1 and vim.startswith(bundled[1], {site}), vim.inspect(bundled))
assert(vim.fn.exists(':Specter') == 2, 'the command')
require('specter').setup({{ settings = {{ enabled = false }} }})
assert(vim.fn.maparg('<Tab>', 'i', false, true).desc == 'Specter', 'the keys')
vim.cmd.help('specter-options')
vim.cmd.checkhealth('specter')
assert(vim.fn.search('Neovim') > 0, 'the report')
vim.cmd.quitall({{ bang = true }})
"""


@pytest.mark.parametrize("version", ["0.12", "0.11", "0.10"])
@pytest.mark.parametrize(
    ("place", "before"), [("opt", "vim.cmd.packadd('specter')"), ("start", "vim.cmd.packloadall()")]
)
def test_installed_as_a_package(version: str, place: str, before: str, tmp_path: Path) -> None:
    """Copied as the README says: with packadd from opt, or from start."""
    shutil.copytree(PLUGIN, tmp_path / "pack" / "specter" / place / "specter")
    script = tmp_path / "user.lua"
    script.write_text(_USER.format(site=json.dumps(str(tmp_path)), before=before))
    command = [neovim(version), "--headless", "-u", "NONE", "-i", "NONE", "-n", "-l", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


_LAZY = """
vim.go.loadplugins = true
vim.opt.runtimepath:prepend(vim.env.LAZY_NVIM)
require('lazy').setup({{
  root = {folder}, lockfile = {folder} .. '/lock.json', state = {folder} .. '/state.json',
  spec = {{ {{ dir = {plugin}, main = 'specter', opts = {{ settings = {{ enabled = false }} }} }} }},
  install = {{ missing = false }}, change_detection = {{ enabled = false }}, rocks = {{ enabled = false }},
}})
assert(vim.fn.exists(':Specter') == 2, 'the command')
assert(vim.fn.maparg('<Tab>', 'i', false, true).desc == 'Specter', 'the keys')
assert(require('specter.config').options.settings.enabled == false, 'the options')
vim.cmd.help('specter-options')
vim.cmd.quitall({{ bang = true }})
"""


# Likewise on no registry; what does not need it, the plugin in a `pack` folder, is tested above without.
@pytest.mark.skipif("LAZY_NVIM" not in os.environ, reason="LAZY_NVIM names no folder")
@pytest.mark.parametrize("version", ["0.12", "0.11", "0.10"])
def test_installed_by_lazy_nvim(version: str, tmp_path: Path) -> None:
    """With the lines of the README."""
    script = tmp_path / "user.lua"
    script.write_text(_LAZY.format(folder=json.dumps(str(tmp_path / "lazy")), plugin=json.dumps(str(PLUGIN))))
    command = [neovim(version), "--headless", "-u", "NONE", "-i", "NONE", "-n", "-l", script]
    environment = os.environ | {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("STATE", "CACHE", "DATA")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=_CORE)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(neovim(request.param), tmp_path, text=_SHAPES) as terminal:
        terminal.ready()
        yield terminal


def test_in_a_terminal(terminal: Terminal) -> None:
    """Type, see it grow, accept a word, accept all, dismiss, undo, write: the file on disk is right."""
    terminal.keys("G", "o")
    seen: list[str] = []
    terminal.wait(terminal.ghost, "ghost text")
    for _ in range(40):
        ghost = terminal.ghost()
        if ghost and (not seen or ghost != seen[-1]):
            seen.append(ghost)
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen)), seen
    whole = terminal.steady_ghost()
    terminal.text(whole[:4])  # typing what is suggested
    ghost = terminal.steady_ghost()
    assert ghost == whole[4:]

    terminal.keys("M-w")
    terminal.wait(lambda: terminal.ghost() != ghost, "the rest after a word")
    rest = terminal.ghost()
    assert ghost.endswith(rest)
    line = next(line for line in terminal.lines() if line.startswith(8 * " " + whole[:4]))
    assert line == 8 * " " + whole.partition("\n")[0], "the word is text now, the rest still ghost"

    terminal.keys("Tab")
    terminal.wait(lambda: terminal.ghost() != rest, "the end of the rest")
    terminal.keys("M-e", "Escape")
    terminal.wait(lambda: not terminal.ghost(), "no ghost text in Normal mode")
    terminal.text(":w\n")
    written = _SHAPES + 8 * " " + whole + "\n"
    terminal.wait(lambda: terminal.file.read_text() != _SHAPES, "the file")
    assert terminal.file.read_text() == written

    terminal.text("uu:w\n")
    terminal.wait(lambda: terminal.file.read_text() == _SHAPES + 8 * " " + whole[:4] + "\n", "undone: two steps")


def test_dismiss_in_a_terminal(terminal: Terminal) -> None:
    terminal.keys("G", "o")
    terminal.text("self.width = ")
    terminal.steady_ghost()
    terminal.keys("M-e")
    terminal.wait(lambda: not terminal.ghost(), "nothing after it was dismissed")
    terminal.keys("Tab", "Escape")
    terminal.text(":w\n")
    wanted = _SHAPES + "        self.width = " + 3 * " " + "\n"
    terminal.wait(lambda: terminal.file.read_text() == wanted, "the key's own indentation in the file")


def test_no_server_in_a_terminal(tmp_path: Path) -> None:
    with Terminal(neovim("0.12"), tmp_path, command=["no-such-specter", "serve"]) as terminal:
        terminal.wait(lambda: "no command `no-such-specter`" in "\n".join(terminal.lines()), "the message")
        terminal.text("ihello")
        terminal.keys("Escape")
        terminal.text(":wq\n")
        terminal.wait(lambda: terminal.file.read_text() == "hello\n", "the file")
