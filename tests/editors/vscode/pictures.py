"""Makes the READMEs' pictures again, of the real editor with the real server.

`python tests/editors/vscode/pictures.py` writes streaming.gif and the STILLS into editors/vscode/media; it needs
Pillow, which `.[plot]` brings.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path

import vscode_tools as tools
from PIL import Image

STILLS = ("ghost", "status", "menu", "context")
SHORTEST_MS, LONGEST_MS = 40, 1500
BOX = (0, 0, 760, 400)


def animation(folder: Path, target: Path) -> None:
    """The recorded frames with their own times, without those that repeat the last."""
    times = json.loads((folder / "frames.json").read_text())
    frames: list[Image.Image] = []
    durations: list[float] = []
    for this, following in itertools.pairwise(times):
        duration = 1000 * (following["time"] - this["time"])
        frame = Image.open(folder / "frames" / this["name"]).convert("RGB").crop(BOX)
        if frames and (frame.tobytes() == frames[-1].tobytes() or durations[-1] < SHORTEST_MS):
            durations[-1] += duration
            frames[-1] = frame
        else:
            frames.append(frame)
            durations.append(duration)
    palette = frames[len(frames) // 2].quantize(128)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    shown = [int(min(LONGEST_MS, max(SHORTEST_MS, duration))) for duration in durations]
    first.save(target, save_all=True, append_images=rest, duration=shown, loop=0, optimize=True)
    print(f"{target.name}: {len(frames)} frames, {sum(shown) / 1000:.1f} s, {target.stat().st_size // 1024} KB")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="specter-vscode-") as name:
        folder = Path(name)
        done = tools.node("pictures.mjs", folder / "run", env=tools.prepare(folder / "vscode"))
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        media = tools.EXTENSION / "media"
        animation(folder / "run", media / "streaming.gif")
        for still in STILLS:
            Image.open(folder / "run" / f"{still}.png").convert("RGB").quantize(128).save(
                media / f"{still}.png", optimize=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
