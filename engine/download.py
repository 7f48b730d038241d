"""Fetches a known pair's models into the Hugging Face cache, with progress, and gives up at once when told to.

The work is done by a process of its own (`python -m engine.download MODEL…`): ending it is the one way to stop a
download that holds for every transport of huggingface_hub. What has arrived stays, and the next download goes on there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.pairs import KnownPair

Report = Callable[[float, str], None]  # fraction done, what is being done

_WANTED = (".json", ".txt", ".model", ".jinja", ".safetensors")
_END_S = 5.0
_EVERY_S = 0.2
_TICK_S = 1.0
_ANSWER_S = 10.0  # how long the hub may take to say what a model has


class DownloadError(Exception):
    """One line: what went wrong and what to do."""


def download(pair: KnownPair, report: Report) -> None:
    """Fetches what of the pair's models is not on this machine; see `fetch`."""
    fetch([model.id for model in pair.models], report)


def fetch(models: list[str], report: Report) -> None:
    """Fetches what of these models (ids) is not on this machine. Raises DownloadError.

    An exception that `report` raises, KeyboardInterrupt among them, ends the download; `report` is called every second
    at least, also while the network is silent.
    """
    last = 0.0, "huggingface.co"
    with _worker(models) as lines:
        for line in lines:
            if "error" in line:
                raise DownloadError(line["error"])
            if "done" in line:
                return
            if "fraction" in line:
                last = line["fraction"], line["message"]
            report(*last)
    raise DownloadError("the download ended without a word; try again")


@contextmanager
def _worker(models: list[str]) -> Iterator[Iterator[dict[str, Any]]]:
    command = [sys.executable, "-m", "engine.download", *models]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        try:
            yield (json.loads(line) for line in process.stdout)
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


class _Progress:
    """Counts the bytes of all files, and says so a few times a second: the caller can stop at each."""

    def __init__(self, total: int) -> None:
        self.file = ""
        self._done, self._total, self._said_at = 0, max(total, 1), 0.0

    def add(self, count: float) -> None:
        self._done += int(count)
        now = time.monotonic()
        if now - self._said_at > _EVERY_S or self._done >= self._total:
            self._said_at = now
            size = f"{self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB"
            _say({"fraction": min(self._done / self._total, 1.0), "message": f"{self.file} ({size})"})


def _fetch(models: list[str]) -> None:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.utils import tqdm as hub_tqdm  # type: ignore[attr-defined]

    files = [(model, name, size) for model in models for name, size in _files(HfApi(), model)]
    progress = _Progress(sum(size for *_, size in files))

    class Bar(hub_tqdm):
        """Draws nothing."""

        def update(self, n: float | None = 1) -> None:
            progress.add(n or 0)

    for model, name, _ in files:
        progress.file = model
        hf_hub_download(model, name, tqdm_class=Bar)


def _files(api: Any, model: str) -> list[tuple[str, int]]:
    """(name, bytes) of the files that loading needs, of two forms of the weights the safe one; weights last, so that a
    model whose weights are there is whole."""
    siblings = api.model_info(model, files_metadata=True, timeout=_ANSWER_S).siblings or []
    sizes = {sibling.rfilename: sibling.size or 0 for sibling in siblings if "/" not in sibling.rfilename}
    wanted = [name for name in sizes if name.endswith(_WANTED)]
    if not any(name.endswith(".safetensors") for name in wanted):
        wanted += [name for name in sizes if name.endswith(".bin")]
    return sorted(((name, sizes[name]) for name in wanted), key=lambda file: file[0].endswith((".safetensors", ".bin")))


def _reason(error: Exception) -> str:
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    match error:
        case GatedRepoError():
            return "the model wants its licence accepted: do so on its page, then log in with `hf auth login`"
        case RepositoryNotFoundError():
            return "there is no such model, or it is not public; see its page"
        case OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set; unset it to download"
        case OSError() if error.errno == 28:
            return "no space is left for the models; free some, or set HF_HOME to another disk"
        case HfHubHTTPError():
            return f"the hub answered with an error ({error.response.status_code}); try again later"
        case _ if any(base.__name__ == "TransportError" for base in type(error).__mro__):  # httpx or httpx2
            return "huggingface.co cannot be reached; check the network, or HF_ENDPOINT for a mirror"
        case _:
            return f"the download failed ({type(error).__name__}); try again"


def _tick() -> None:
    """Lets the caller stop while the network is silent; ends this process when the caller has gone."""
    try:
        while True:
            time.sleep(_TICK_S)
            _say({"tick": True})
    except OSError:
        os._exit(1)


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")  # in one piece: two threads write
    sys.stdout.flush()


def main(models: list[str]) -> None:
    """One JSON object a line on stdout: {fraction, message} or {tick}…, then {done} or {error}."""
    threading.Thread(target=_tick, daemon=True).start()
    try:
        _fetch(models)
    except Exception as error:
        _say({"error": _reason(error)})
    else:
        _say({"done": True})


if __name__ == "__main__":
    main(sys.argv[1:])
