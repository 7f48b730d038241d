"""Makes the pictures of the Neovim plugin from real runs: python tests/editors/neovim/nvim_pictures.py

Neovim 0.12 in tmux with the real server on the embedded pair; Pillow draws the cells.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import matplotlib
from nvim_install import PLUGIN, neovim
from nvim_terminal import Screen, Terminal
from PIL import Image, ImageDraw, ImageFont

OUT = PLUGIN / "pictures"

_SIZE = 26  # pixels of the font: twice what is shown, for dense screens
_LINE = 36
_MARGIN = 28
_TITLE = 56
_PAPER, _INK, _BAR = (20, 22, 27), (224, 226, 234), (44, 46, 51)  # Neovim's own dark colours

_TEXT = '''class Rectangle:
    """A rectangle with a width and a height."""

    def __init__(self, width, height):
'''


def _font(bold: bool, italic: bool) -> ImageFont.FreeTypeFont:
    style = {(False, False): "", (True, False): "-Bold", (False, True): "-Oblique", (True, True): "-BoldOblique"}
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(folder / f"DejaVuSansMono{style[bold, italic]}.ttf"), _SIZE)


def window(screen: Screen, caption: str) -> Image.Image:
    """A terminal window with this on its screen."""
    fonts = {(bold, italic): _font(bold, italic) for bold in (False, True) for italic in (False, True)}
    cell = round(fonts[False, False].getlength("M"))
    width = len(screen[0]) * cell + 2 * _MARGIN
    height = len(screen) * _LINE + _TITLE + _MARGIN
    picture = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    canvas = ImageDraw.Draw(picture)
    canvas.rounded_rectangle((0, 0, width - 1, height - 1), 18, fill=_PAPER)
    canvas.rounded_rectangle((0, 0, width - 1, _TITLE - 8), 18, fill=_BAR)
    canvas.rectangle((0, _TITLE // 2, width - 1, _TITLE - 8), fill=_BAR)
    for place, colour in enumerate(((255, 95, 87), (254, 188, 46), (40, 200, 64))):
        canvas.ellipse((24 + 34 * place, 15, 42 + 34 * place, 33), fill=colour)
    canvas.text((width / 2, 24), caption, font=fonts[False, False], fill=(154, 158, 168), anchor="mm")
    for line, row in enumerate(screen):
        y = _TITLE + line * _LINE
        for column, (text, foreground, background, bold, italic, reverse) in enumerate(row):
            ink, paper = foreground or _INK, background or _PAPER
            if reverse:
                ink, paper = paper, ink
            x = _MARGIN + column * cell
            if paper != _PAPER:
                canvas.rectangle((x, y, x + cell - 1, y + _LINE - 1), fill=paper)
            if text != " ":
                canvas.text((x, y + _LINE / 2), text, font=fonts[bold, italic], fill=ink, anchor="lm")
    return picture


def still(screen: Screen, caption: str, path: Path) -> None:
    picture = window(screen, caption).quantize(64, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size} bytes")


class Film:
    """What a terminal shows, as often as it can be read."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._frames: list[tuple[Screen, float]] = []  # and since when, in s

    def record(self, for_s: float) -> None:
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            screen, now = self._terminal.screen(), time.monotonic()
            if not self._frames or screen != self._frames[-1][0]:
                self._frames.append((screen, now))

    def save(self, path: Path, caption: str) -> None:
        ends = [since for _, since in self._frames[1:]] + [time.monotonic()]
        shown_ms = [int(1000 * (end - since)) for (_, since), end in zip(self._frames, ends, strict=True)]
        pictures = [window(screen, caption) for screen, _ in self._frames]
        size = (pictures[0].width // 2, pictures[0].height // 2)
        small = [picture.convert("RGB").resize(size, Image.Resampling.LANCZOS) for picture in pictures]
        palette = small[len(small) // 2].quantize(64, method=Image.Quantize.MAXCOVERAGE)
        first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in small]
        first.save(path, save_all=True, append_images=rest, duration=shown_ms, loop=0, optimize=True)
        print(f"{path.name}: {len(small)} frames, {sum(shown_ms) / 1000:.1f} s, {path.stat().st_size} bytes")


def animation(nvim: Path) -> None:
    """Text streams in; it is typed along, taken word by word, then as a whole."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Terminal(nvim, Path(folder), file="shapes.py", text=_TEXT, size=(62, 9), number=True) as terminal,
    ):
        terminal.ready()
        terminal.keys("G", "$")
        film = Film(terminal)
        film.record(0.8)
        terminal.keys("o")
        film.record(0.1)
        terminal.wait(terminal.ghost, "ghost text")
        film.record(1.8)
        for character in terminal.ghost()[:5]:
            terminal.text(character)
            film.record(0.15)
        film.record(0.6)
        for _ in range(2):
            terminal.keys("M-w")
            film.record(0.7)
        terminal.keys("Tab")
        film.record(0.3)
        terminal.keys("Escape")
        film.record(2.0)
        film.save(OUT / "streaming.gif", "shapes.py")


def suggestion(nvim: Path) -> None:
    """A suggestion, and what is left of it after some words."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Terminal(nvim, Path(folder), file="shapes.py", text=_TEXT, size=(62, 9), number=True) as terminal,
    ):
        terminal.ready()
        terminal.keys("G", "o")
        terminal.steady_ghost()
        whole = terminal.screen()
        for _ in range(3):
            before = terminal.ghost()
            terminal.keys("M-w")
            terminal.wait(lambda before=before: terminal.ghost() != before, "the rest")
        rest = terminal.screen()
    still(whole, "a moment after the key", OUT / "streaming.png")
    still(rest, "three words accepted, the rest waits", OUT / "words.png")


def main() -> None:
    OUT.mkdir(exist_ok=True)
    suggestion(neovim("0.12"))
    animation(neovim("0.12"))


if __name__ == "__main__":
    main()
