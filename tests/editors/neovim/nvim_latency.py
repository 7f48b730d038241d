"""How long from a key to ghost text on the screen: python tests/editors/neovim/nvim_latency.py [--nvim 0.11]

Neovim runs on a pseudo terminal; a key is written, and the clock stops when the ghost text's colour comes out. Neovim
notes on the same clock when it sent the request, got the first text and had drawn it; the server says how long its
first text took. Then 20 keys a second for 10 s: nothing lost, one generation at most, and how fast the keys show.
The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import tempfile
import termios
import time
from pathlib import Path

from nvim_install import neovim
from nvim_terminal import GHOST, Terminal

_INK = ";".join(map(str, GHOST)).encode()

_NOTES = """
Times = {}
request, ghost = require('specter.client'), require('specter.ghost')
local complete, show = request.complete, ghost.show
request.complete = function(buf, context, on_items)
  Times = { sent = vim.uv.hrtime() }
  return complete(buf, context, function(items, last)
    if #items > 0 and not Times.received then Times.received = vim.uv.hrtime() end
    on_items(items, last)
  end)
end
ghost.show = function(drawing)
  show(drawing)
  if not Times.drawn then Times.drawn = vim.uv.hrtime() end
end
function Write(path, value)
  vim.fn.writefile({ vim.json.encode(value) }, path .. '.part')
  vim.uv.fs_rename(path .. '.part', path)
end
function Watch()
  Watched = vim.uv.new_timer()
  Watched:start(0, 50, vim.schedule_wrap(function()
    request.ask('specter/stats', vim.empty_dict(), function(stats)
      Live = math.max(Live, stats.liveGenerations)
    end)
  end))
end
function Report(path)
  request.ask('specter/stats', vim.empty_dict(), function(stats)
    Times.stats = stats
    Write(path, Times)
  end)
end
"""

_TEXT = '''class Rectangle:
    """A rectangle with a width and a height."""

    def area(self):
        return self.width * self.height

    def __init__(self, width, height):
'''


class Screen:
    """Neovim on a pseudo terminal of ours."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def write(self, keys: str) -> int:
        """Returns when, in ns."""
        at = time.monotonic_ns()
        os.write(self.fd, keys.encode())
        return at

    def until(self, wanted: bytes, timeout_s: float) -> int | None:
        """When these bytes came out, in ns; None if they did not."""
        seen, end = b"", time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                seen += os.read(self.fd, 65536)
                if wanted in seen:
                    return time.monotonic_ns()
        return None

    def when(self, wanted: bytes, for_s: float) -> list[int]:
        """All the times at which output with these bytes came, in ns."""
        times, end = [], time.monotonic() + for_s
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0] and wanted in os.read(self.fd, 65536):
                times.append(time.monotonic_ns())
        return times

    def rest(self, quiet_s: float) -> None:
        """Read until nothing has come for this long."""
        while select.select([self.fd], [], [], quiet_s)[0]:
            os.read(self.fd, 65536)

    def close(self) -> None:
        self.write("\x1b\x1b:qa!\r")
        self.rest(0.5)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def report(screen: Screen, folder: Path) -> dict[str, object]:
    path = folder / "times.json"
    path.unlink(missing_ok=True)
    screen.write(f"\x1b:lua Report('{path}')\r")
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        screen.rest(0.02)
    return json.loads(path.read_text())


def first_ghost(screen: Screen, folder: Path, keys: int) -> dict[str, object]:
    """Medians, in ms, over this many keys with warm models."""
    rows: list[dict[str, float]] = []
    remembered = report(screen, folder)["stats"]["typedThrough"]
    for attempt in range(4 * keys):
        if len(rows) == keys:
            break
        # Each time another text: the server remembers what it has suggested where.
        screen.write(
            f"\x1b:silent! %d|silent! put =substitute(Body, 'Rectangle', 'Rectangle{attempt}', '')|1d\r" + "GA\r"
        )
        screen.rest(0.7)
        pressed = screen.write("rfip"[attempt % 4])
        inked = screen.when(_INK, 1.5)
        times = report(screen, folder)
        shown = next((at for at in inked if at >= times.get("drawn", 1 << 63)), None)
        before, remembered = remembered, times["stats"]["typedThrough"]
        if shown is None or times["sent"] < pressed or remembered != before:
            continue  # no suggestion, or the one on the screen went on
        server = times["stats"]["last"]["ttft_ms"]
        rows.append(
            {
                "total": (shown - pressed) / 1e6,
                "key": (times["sent"] - pressed) / 1e6,
                "server": server,
                "protocol": (times["received"] - times["sent"]) / 1e6 - server,
                "drawing": (shown - times["received"]) / 1e6,
            }
        )
    medians = {name: round(statistics.median(row[name] for row in rows), 1) for name in rows[0]} if rows else {}
    return {
        "keys": len(rows),
        "median_ms": medians,
        "worst_ms": round(max((row["total"] for row in rows), default=0), 1),
    }


def typing(screen: Screen, folder: Path, seconds: int) -> dict[str, object]:
    """20 keys a second: what was written, how many generations lived, how long until a key shows."""
    text = ("total = width * height + 2 * depth - 1; " * 20)[: 20 * seconds]
    screen.write("\x1b:silent! %d|set noautoindent indentexpr= textwidth=0|lua Live = 0\r")
    screen.write(":lua Watch()\r")
    screen.rest(0.5)
    screen.write("i")
    echoes: list[float] = []
    start = time.monotonic()
    for number, character in enumerate(text):
        pressed = screen.write(character)
        if character != " ":
            shown = screen.until(character.encode(), 1)
            echoes.append((shown - pressed) / 1e6 if shown else 1000.0)
        time.sleep(max(0.0, start + (number + 1) / 20 - time.monotonic()))
    path = folder / "typed"
    screen.write(
        f"\x1b:lua Watched:stop() vim.fn.writefile({{ vim.json.encode({{ Live, vim.fn.getline(1) }}) }}, '{path}')\r"
    )
    screen.rest(1.0)
    live, line = json.loads(path.read_text())
    return {
        "keys": len(text),
        "lost_or_reordered": line != text,
        "live_generations": live,
        "echo_ms": {"median": round(statistics.median(echoes), 1), "max": round(max(echoes), 1)},
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--nvim", default="0.12")
    arguments.add_argument("--keys", type=int, default=20)
    arguments.add_argument("--seconds", type=int, default=10)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = f"{_NOTES}\nvim.g.Body = {json.dumps(_TEXT)}\n"
        terminal = Terminal(neovim(given.nvim), folder, text=_TEXT, extra=body)
        screen = Screen(terminal.command, os.environ | terminal.environment)
        if screen.until("specter ●".encode(), 120) is None:
            raise SystemExit("the models were not loaded within two minutes")
        screen.rest(1.0)
        latency = first_ghost(screen, folder, given.keys)
        flow = typing(screen, folder, given.seconds)
        screen.close()
    medians = latency["median_ms"]
    print(f"Neovim {given.nvim}, {latency['keys']} keys, median ms from a key to ghost text: {medians}")
    print(f"20 keys/s for {given.seconds} s: {flow}")
    print(json.dumps({"nvim": given.nvim, "first_ghost": latency, "typing": flow}))


if __name__ == "__main__":
    main()
