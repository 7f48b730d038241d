"""Neovim with the plugin in a real terminal (tmux), and what is on its screen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from nvim_install import PLUGIN, SPECTER, tmux

GHOST = (0x8A, 0x8F, 0x98)  # a colour that nothing else on the screen has

_INIT = """
vim.opt.runtimepath:prepend({plugin})
vim.o.termguicolors, vim.o.background, vim.o.swapfile, vim.o.number = true, 'dark', false, {number}
vim.o.shortmess = vim.o.shortmess .. 'I'
vim.o.showmode, vim.o.ruler = false, false
vim.o.laststatus = 2
vim.o.statusline = " %t %m%=%{{v:lua.require'specter'.statusline()}} "
vim.cmd('filetype plugin indent on | syntax on')
vim.api.nvim_set_hl(0, 'SpecterGhost', {{ fg = '#8a8f98', italic = true }})
require('specter').setup({{ cmd = {command}, settings = vim.json.decode({settings}) }})
{extra}
"""


class Cell(NamedTuple):
    text: str
    foreground: tuple[int, int, int] | None
    background: tuple[int, int, int] | None
    bold: bool
    italic: bool
    reverse: bool


PLAIN = Cell(" ", None, None, bold=False, italic=False, reverse=False)
Screen = list[list[Cell]]


class Terminal:
    """One Neovim on one file, in a tmux server of its own that ends with the block."""

    def __init__(
        self,
        nvim: Path,
        folder: Path,
        *,
        file: str = "shapes.py",
        text: str = "",
        size: tuple[int, int] = (80, 16),
        command: list[str] | None = None,
        settings: dict[str, object] | None = None,
        extra: str = "",
        number: bool = False,
    ) -> None:
        self.file = folder / file
        self.file.write_text(text)
        init = folder / "init.lua"
        init.write_text(
            _INIT.format(
                plugin=json.dumps(str(PLUGIN)),
                command="{" + ",".join(map(json.dumps, command or [str(SPECTER), "serve", "--device", "cpu"])) + "}",
                settings=f"[==[{json.dumps(settings or {})}]==]",
                extra=extra,
                number=str(number).lower(),
            )
        )
        self._program = tmux()
        self._socket = folder / "tmux"
        self._size = size
        self.command = [str(nvim), "-u", str(init), "-i", "NONE", "-n", str(self.file)]
        self.environment = {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "NVIM_LOG_FILE": "/dev/null",
            **{f"XDG_{kind}_HOME": f"{folder}/{kind}" for kind in ("STATE", "CACHE", "DATA", "CONFIG")},
        }

    def __enter__(self) -> Self:
        columns, lines = map(str, self._size)
        start = ["-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines]
        inside = [f"{name}={value}" for name, value in self.environment.items() if name != "TERM"]
        self._tmux(*start, "env", *inside, *self.command, env=os.environ | self.environment)
        self._tmux("set-option", "-s", "escape-time", "0")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server", check=False)

    def keys(self, *keys: str) -> None:
        """Named keys, as tmux knows them: Enter, Escape, Tab, M-w."""
        self._tmux("send-keys", *keys)

    def text(self, text: str, pause_s: float = 0.03) -> None:
        """Characters, one after the other."""
        for character in text:
            self._tmux("send-keys", "-l", character)
            time.sleep(pause_s)

    def screen(self) -> Screen:
        return parse(self._tmux("capture-pane", "-p", "-e", "-N"), self._size)

    def lines(self) -> list[str]:
        return [row_text(row).rstrip() for row in self.screen()]

    def ghost(self) -> str:
        """The ghost text on the screen; its lines end in newlines."""
        rows = ("".join(cell.text for cell in row if cell.foreground == GHOST) for row in self.screen())
        return "\n".join(row for row in rows if row)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"never came: {what}\n" + "\n".join(self.lines()))
            time.sleep(0.02)

    def ready(self) -> None:
        self.wait(lambda: "specter ●" in "\n".join(self.lines()), "the models")

    def steady_ghost(self, still_s: float = 0.8) -> str:
        """The ghost text once it has stopped to grow."""
        self.wait(self.ghost, "ghost text")
        before, since = self.ghost(), time.monotonic()
        while time.monotonic() - since < still_s:
            time.sleep(0.05)
            now = self.ghost()
            if now != before:
                before, since = now, time.monotonic()
        return before

    def _tmux(self, *arguments: str, check: bool = True, env: dict[str, str] | None = None) -> str:
        command = [self._program, "-u", "-S", str(self._socket), *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True, env=env).stdout


def row_text(row: list[Cell]) -> str:
    return "".join(cell.text for cell in row)


_BASIC = ["000000", "cd3131", "0dbc79", "e5e510", "2472c8", "bc3fbc", "11a8cd", "e5e5e5"]
_BRIGHT = ["666666", "f14c4c", "23d18b", "f5f543", "3b8eea", "d670d6", "29b8db", "ffffff"]


def _indexed(number: int) -> tuple[int, int, int]:
    if number < 16:
        value = int((_BASIC + _BRIGHT)[number], 16)
        return value >> 16, value >> 8 & 255, value & 255
    if number < 232:
        number -= 16
        red, green, blue = (
            (0 if part == 0 else 55 + 40 * part) for part in (number // 36, number // 6 % 6, number % 6)
        )
        return red, green, blue
    grey = 8 + 10 * (number - 232)
    return grey, grey, grey


def _styled(cell: Cell, codes: list[int]) -> Cell:
    """`cell` with the attributes of one escape sequence."""
    while codes:
        code = codes.pop(0)
        if code == 0:
            cell = PLAIN
        elif code in (38, 48):
            colour = tuple(codes[1:4]) if codes[0] == 2 else _indexed(codes[1])
            del codes[: 4 if codes[0] == 2 else 2]
            cell = cell._replace(**{"foreground" if code == 38 else "background": colour})
        elif code in (39, 49):
            cell = cell._replace(**{"foreground" if code == 39 else "background": None})
        elif code // 10 in (3, 9) and code % 10 < 8:
            cell = cell._replace(foreground=_indexed(code % 10 + (8 if code >= 90 else 0)))
        elif code // 10 in (4, 10) and code % 10 < 8:
            cell = cell._replace(background=_indexed(code % 10 + (8 if code >= 100 else 0)))
        elif code in (1, 22):
            cell = cell._replace(bold=code == 1)
        elif code in (3, 23):
            cell = cell._replace(italic=code == 3)
        elif code in (7, 27):
            cell = cell._replace(reverse=code == 7)
    return cell


def parse(output: str, size: tuple[int, int]) -> Screen:
    """The cells behind what `tmux capture-pane -e` prints."""
    columns, lines = size
    screen, style = [], PLAIN
    for line in output.split("\n")[:lines]:
        row: list[Cell] = []
        for part in re.split(r"(\x1b\[[\d;:]*m)", line):
            if part.startswith("\x1b"):
                codes = [int(code or 0) for code in re.split("[;:]", part[2:-1])]
                style = _styled(style, codes)
            else:
                row += [style._replace(text=character) for character in part]
        screen.append(row + [PLAIN] * (columns - len(row)))
    return screen
