"""Downloads from a hub on this machine, by huggingface_hub's own code: whole, broken off, refused, not there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub, served
from tiny import write_checkpoint

from engine.download import DownloadError, download
from engine.pairs import KnownModel, KnownPair

PAIR = KnownPair("tiny", KnownModel("some/target", 0.001, 0), KnownModel("some/draft", 0.001, 0), "qwen", "none")


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two tiny checkpoints; the target's folder also holds what nobody needs, and a megabyte of padding to wait for."""
    folder = tmp_path_factory.mktemp("repositories")
    target = write_checkpoint(folder / "target")
    (target / "pytorch_model.bin").write_bytes(b"not wanted")
    (target / "notes.txt").write_bytes(os.urandom(2**20))
    return {"some/target": target, "some/draft": write_checkpoint(folder / "draft", seed=1)}


@pytest.fixture
def hub(repositories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with served(repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield hub


def here(home: Path) -> list[str]:
    """What a process of its own, as after a restart, sees of the pair in the cache."""
    code = "from engine.local_models import presence; print(presence('some/target'), presence('some/draft'), sep='\\n')"
    environment = {**os.environ, "HF_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True).stdout.split(
        "\n"
    )[:2]


def test_the_whole_pair(hub: Hub, tmp_path: Path) -> None:
    """Seen to fail: progress by file, which starts anew with each."""
    reports: list[tuple[float, str]] = []
    assert here(tmp_path) == ["not on this machine"] * 2
    download(PAIR, lambda fraction, message: reports.append((fraction, message)))
    assert here(tmp_path) == ["on this machine"] * 2
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert next(what for _, what in reports if what != "huggingface.co").startswith("some/target (0.0 of 0.0 GB")
    assert not list(tmp_path.rglob("pytorch_model.bin"))
    sent = hub.sent
    download(PAIR, lambda *_: None)
    assert hub.sent == sent, "what is here is not fetched again"


def test_cancelled_half_way_and_taken_up_again(hub: Hub, tmp_path: Path) -> None:
    """Seen to fail: the process not ended, so that the caller waits for the whole download."""

    class CancelledError(Exception):
        pass

    def cancel(fraction: float, message: str) -> None:
        if fraction > 0.3:
            raise CancelledError

    hub.pause_s = 0.05
    with pytest.raises(CancelledError):
        download(PAIR, cancel)
    time.sleep(0.3)
    sent = hub.sent
    time.sleep(0.5)
    assert hub.sent == sent, "the download goes on"
    assert "on this machine" not in here(tmp_path)
    hub.pause_s = 0.0
    download(PAIR, lambda *_: None)
    assert here(tmp_path) == ["on this machine"] * 2


@pytest.mark.parametrize(
    ("status", "says"),
    [(403, "wants its licence accepted"), (404, "there is no such model"), (500, "answered with an error (500)")],
)
def test_refused(status: int, says: str, hub: Hub) -> None:
    hub.refuses = status
    with pytest.raises(DownloadError) as caught:
        download(PAIR, lambda *_: None)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_silent_network_can_be_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seen to fail without ticks: nothing is reported, so nothing can stop."""

    class CancelledError(Exception):
        pass

    def cancel(fraction: float, message: str) -> None:
        raise CancelledError

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        began = time.monotonic()
        with pytest.raises(CancelledError):
            download(PAIR, cancel)
        assert time.monotonic() - began < 6


@pytest.mark.usefixtures("hub")
def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"^huggingface\.co cannot be reached; check the network, or HF_ENDPOINT"):
        download(PAIR, lambda *_: None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DownloadError, match=r"^HF_HUB_OFFLINE is set"):
        download(PAIR, lambda *_: None)


def test_the_command(hub: Hub, tmp_path: Path) -> None:
    """In a process of its own, as a user has it: what huggingface_hub reads of the environment it reads once."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name, says in (
        ("embedded", "embedded is on this machine"),
        ("qwen2.5-coder-7b", "specter: qwen2.5-coder-7b: there is no such model, or it is not public; see its page"),
        ("nonesuch", "specter: --pair: 'nonesuch' is unknown; use auto or one of embedded, "),
    ):
        command = [sys.executable, "-m", "lsp_server", "pairs", "--download", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout + done.stderr).startswith(says)
        assert done.returncode == (0 if name == "embedded" else 2)
        assert (done.stdout + done.stderr).count("\n") == 1


def test_loading_fetches_what_is_not_here_and_then_asks_no_network(hub: Hub, tmp_path: Path) -> None:
    """Seen to fail: transformers asks the hub for a dozen files each time, and waits a minute if it is not there."""
    code = (
        "from engine.config import EngineConfig; from engine.loading import load;"
        "pair = load(EngineConfig(target='some/target', draft='some/draft', device='cpu'), lambda *told: print(*told));"
        "print(pair.name, pair.drafter_name)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "downloading some/target" in done.stdout
    assert done.stdout.endswith("target merged\n")
    environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "some/target" not in again.stdout
    assert (again.stdout.endswith("target merged\n"), again.stderr) == (True, "")
    assert not [path for path in tmp_path.rglob("*") if path.name == ".no_exist"], "transformers asked"


@pytest.mark.usefixtures("hub")
def test_a_pair_that_is_not_here_without_a_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: 45 lines and 60 s."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "lsp_server", "complete", f"{__file__}:1:1", "--pair", "qwen2.5-coder-1.5b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "specter: --pair: Qwen/Qwen2.5-Coder-1.5B is not on this machine: huggingface.co cannot be reached; check the "
        "network, or HF_ENDPOINT for a mirror; or use a pair that is here (`specter pairs`)\n"
    )
