"""Makes the pictures of the Neovim plugin from real runs: python tests/editors/neovim/nvim_pictures.py

Neovim 0.12 in tmux with the real server on the embedded pair; Pillow draws the cells.
"""

from __future__ import annotations

import tempfile
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


def draw(screens: list[Screen], captions: list[str], path: Path) -> None:
    """One window for each screen, one below the other."""
    fonts = {(bold, italic): _font(bold, italic) for bold in (False, True) for italic in (False, True)}
    cell = round(fonts[False, False].getlength("M"))
    columns, rows = len(screens[0][0]), len(screens[0])
    width = columns * cell + 2 * _MARGIN
    height = rows * _LINE + _TITLE + _MARGIN
    picture = Image.new("RGBA", (width, len(screens) * (height + _MARGIN) - _MARGIN), (0, 0, 0, 0))
    canvas = ImageDraw.Draw(picture)
    for number, (screen, caption) in enumerate(zip(screens, captions, strict=True)):
        top = number * (height + _MARGIN)
        canvas.rounded_rectangle((0, top, width - 1, top + height - 1), 18, fill=_PAPER)
        canvas.rounded_rectangle((0, top, width - 1, top + _TITLE - 8), 18, fill=_BAR)
        canvas.rectangle((0, top + _TITLE // 2, width - 1, top + _TITLE - 8), fill=_BAR)
        for place, colour in enumerate(((255, 95, 87), (254, 188, 46), (40, 200, 64))):
            canvas.ellipse((24 + 34 * place, top + 15, 42 + 34 * place, top + 33), fill=colour)
        canvas.text((width / 2, top + 24), caption, font=fonts[False, False], fill=(154, 158, 168), anchor="mm")
        for line, row in enumerate(screen):
            y = top + _TITLE + line * _LINE
            for column, (text, foreground, background, bold, italic, reverse) in enumerate(row):
                ink, paper = foreground or _INK, background or _PAPER
                if reverse:
                    ink, paper = paper, ink
                x = _MARGIN + column * cell
                if paper != _PAPER:
                    canvas.rectangle((x, y, x + cell - 1, y + _LINE - 1), fill=paper)
                if text != " ":
                    canvas.text((x, y + _LINE / 2), text, font=fonts[bold, italic], fill=ink, anchor="lm")
    path.parent.mkdir(exist_ok=True)
    picture.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size} bytes")


def suggestion(nvim: Path) -> None:
    """A suggestion in its first moment, then whole; and what is left of it after a word."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Terminal(nvim, Path(folder), file="shapes.py", text=_TEXT, size=(62, 9), number=True) as terminal,
    ):
        terminal.ready()
        terminal.keys("G", "o")
        terminal.wait(terminal.ghost, "ghost text")
        first = terminal.screen()
        terminal.steady_ghost()
        whole = terminal.screen()
        for _ in range(3):
            before = terminal.ghost()
            terminal.keys("M-w")
            terminal.wait(lambda before=before: terminal.ghost() != before, "the rest")
        rest = terminal.screen()
    draw([first, whole], ["as it is written", "a moment later"], OUT / "streaming.png")
    draw([rest], ["three words accepted, the rest waits"], OUT / "words.png")


def main() -> None:
    suggestion(neovim("0.12"))


if __name__ == "__main__":
    main()
