"""`specter complete`: the text at a cursor, as it comes; the models' part is real, the streaming part scripted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.config import EngineConfig
from engine.generation import generate
from engine.loading import LoadedPair, load
from engine.record import Completion
from engine.request import Chunk, CompletionRequest
from lsp_server.cli import main
from lsp_server.commands import place

PREFIX = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        "
SUFFIX = "\n\n    def pop(self):\n        return self.items.pop()\n"
CURSOR = "6:9"


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return load(EngineConfig(device="cpu", dtype="float32"))


@pytest.fixture
def loaded(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """`complete` without the second that loading takes."""
    monkeypatch.setattr("lsp_server.commands.complete.load_pair", lambda config: pair)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "stack.py"
    path.write_text(PREFIX + SUFFIX)
    return path


@pytest.mark.usefixtures("loaded")
class TestModel:
    """With the embedded pair."""

    def test_the_text_is_the_engines(self, stack, pair, capsys):
        assert main(["complete", f"{stack}:{CURSOR}"]) == 0
        request = CompletionRequest(PREFIX, SUFFIX, "stack.py", stack.parent.name)
        *_, last = generate(pair, request, pair.drafter())
        out, err = capsys.readouterr()
        assert out == last.completion.text == "self.items.append(item)"
        assert not err

    def test_json_is_one_object(self, stack, capsys):
        assert main(["complete", f"{stack}:{CURSOR}", "--json"]) == 0
        out, err = capsys.readouterr()
        completion = json.loads(out)
        assert completion["text"] == "self.items.append(item)"
        assert completion["drafted"] == completion["accepted"] + completion["rejected"] + completion["discarded"]
        assert completion["stop"] == "eos"
        assert not err

    @pytest.mark.parametrize("end", ["\r\n", "\r"])
    def test_line_ends_do_not_change_the_text(self, end, stack, capsys):
        """Failed with the file's own line ends in the prompt."""
        stack.write_bytes((PREFIX + SUFFIX).replace("\n", end).encode())
        assert main(["complete", f"{stack}:{CURSOR}"]) == 0
        assert capsys.readouterr().out == "self.items.append(item)"

    def test_an_empty_file(self, tmp_path, capsys):
        (tmp_path / "empty.py").touch()
        assert main(["complete", f"{tmp_path / 'empty.py'}:1:1", "--max-tokens", "4"]) == 0
        assert not capsys.readouterr().err

    def test_options_reach_the_engine(self, stack, capsys):
        """Failed with EngineConfig() in place of the command line's configuration."""
        options = ["--temperature", "1.5", "--seed", "7", "--max-tokens", "5", "--json", "--raw"]
        texts = []
        for _ in range(2):
            assert main(["complete", f"{stack}:{CURSOR}", *options]) == 0
            completion = json.loads(capsys.readouterr().out)
            texts.append(completion["text"])
            assert (completion["mode"], completion["seed"]) == ("sampled", 7)
            assert completion["tokens"] <= 5
        assert texts[0] == texts[1]


def scripted(monkeypatch: pytest.MonkeyPatch, pieces: list[str]) -> list[CompletionRequest]:
    """Makes the engine say `pieces`; returns the list that gets its requests."""
    requests: list[CompletionRequest] = []

    def fake(pair: object, request: CompletionRequest, drafter: object) -> Iterator[Chunk]:
        requests.append(request)
        for piece in pieces:
            yield Chunk(piece, 1)
        values: dict[str, object] = dict.fromkeys(Completion.__dataclass_fields__, 0)
        values |= {"text": "".join(pieces), "token_ids": (), "notes": (), "unknown": frozenset()}
        yield Chunk("", completion=Completion(**values))  # type: ignore[arg-type]

    monkeypatch.setattr("engine.generation.generate", fake)
    fake_pair = SimpleNamespace(reads_other_files=False, drafter=lambda: None)
    monkeypatch.setattr("lsp_server.commands.complete.load_pair", lambda config: fake_pair)
    return requests


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches stdout, one entry a flush."""
    written: list[str] = []
    pending: list[str] = []

    class Stdout:
        write: Callable[[str], None] = staticmethod(pending.append)

        @staticmethod
        def flush() -> None:
            if pending:
                written.append("".join(pending))
                pending.clear()

        @staticmethod
        def isatty() -> bool:
            return False

    monkeypatch.setattr("lsp_server.commands.complete.sys", SimpleNamespace(stdout=Stdout))
    return written


class TestStreaming:
    """With a scripted engine."""

    def place(self, tmp_path: Path, before: str, after: str) -> str:
        path = tmp_path / "app.py"
        path.write_text(before + after)
        return f"{path}:{before.count(chr(10)) + 1}:{len(before.rpartition(chr(10))[2]) + 1}"

    def test_each_piece_is_flushed(self, tmp_path, monkeypatch, writes):
        """Failed with print(text) at the end."""
        scripted(monkeypatch, ["a", " =", "", " b"])
        assert main(["complete", self.place(tmp_path, "", "\n")]) == 0
        assert writes == ["a", " =", " b"]

    def test_what_the_line_has_already_is_not_printed(self, tmp_path, monkeypatch, writes):
        """Failed with the untrimmed text in the stream: the bracket could not be taken back."""
        scripted(monkeypatch, ["x", ")", ""])
        assert main(["complete", self.place(tmp_path, "print(", ")\n")]) == 0
        assert writes == ["x"]

    def test_a_bracket_that_belongs_inside_is_printed_late(self, tmp_path, monkeypatch, writes):
        scripted(monkeypatch, ["f(x", ")", " + 1"])
        assert main(["complete", self.place(tmp_path, "print(", ")\n")]) == 0
        assert writes == ["f(x", ") + 1"]

    def test_a_repeat_of_the_next_line_is_not_printed(self, tmp_path, monkeypatch, writes):
        """Failed with `finished=True` for every piece: the first one only began the repeat."""
        scripted(monkeypatch, ["return", " x"])
        assert main(["complete", self.place(tmp_path, "def f(x):\n    ", "\n    return x\n")]) == 0
        assert writes == []

    def test_raw_is_untrimmed_and_does_not_end_with_the_line(self, tmp_path, monkeypatch, writes):
        requests = scripted(monkeypatch, ["x", ")", "\n)"])
        where = self.place(tmp_path, "print(", ")\n")
        assert main(["complete", where, "--raw"]) == 0
        assert main(["complete", where]) == 0
        assert writes[:3] == ["x", ")", "\n)"]
        assert [request.stop for request in requests] == [(), ("\n",)]

    def test_json_has_the_text_that_would_be_printed(self, tmp_path, monkeypatch, capsys):
        scripted(monkeypatch, ["x", ")"])
        where = self.place(tmp_path, "print(", ")\n")
        assert main(["complete", where, "--json"]) == 0
        assert main(["complete", where, "--json", "--raw"]) == 0
        trimmed, raw = map(json.loads, capsys.readouterr().out.splitlines())
        assert (trimmed["text"], raw["text"]) == ("x", "x)")

    def test_no_deadline(self, tmp_path, monkeypatch, writes):
        """The server's would cut a long completion on a slow machine."""
        requests = scripted(monkeypatch, ["x"])
        main(["complete", self.place(tmp_path, "", "")])
        assert requests[0].deadline_s is None

    def test_the_path_is_the_projects(self, tmp_path, monkeypatch, writes):
        requests = scripted(monkeypatch, ["x"])
        monkeypatch.chdir(tmp_path)
        (tmp_path / "src").mkdir()
        where = self.place(tmp_path / "src", "", "")
        main(["complete", where])
        monkeypatch.chdir(Path(__file__).parent)
        main(["complete", where])
        assert [(one.repository, one.path) for one in requests] == [(tmp_path.name, "src/app.py"), ("src", "app.py")]


class TestPlace:
    """What FILE:LINE:COL means."""

    @pytest.mark.parametrize(
        ("text", "path", "line", "column"),
        [
            ("app.py:1:2", "app.py", 1, 2),
            ("C:\\code\\app.py:3:7", "C:\\code\\app.py", 3, 7),
            ("a:b:1:2", "a:b", 1, 2),
        ],
    )
    def test_the_last_two_numbers_count(self, text, path, line, column):
        assert place.parse(text) == (Path(path), line, column)

    @pytest.mark.parametrize(
        ("line", "column", "prefix", "suffix"),
        [
            (1, 1, "", "aé\r\n\f𝒳b\rc\n"),
            (1, 3, "aé", "\r\n\f𝒳b\rc\n"),
            (2, 2, "aé\r\n\f", "𝒳b\rc\n"),
            (2, 3, "aé\r\n\f𝒳", "b\rc\n"),  # columns are characters, a form feed ends no line
            (3, 2, "aé\r\n\f𝒳b\rc", "\n"),
            (4, 1, "aé\r\n\f𝒳b\rc\n", ""),
        ],
    )
    def test_the_cursor_splits_the_text(self, line, column, prefix, suffix, tmp_path):
        """Failed with `Document.locate` in between, which counts UTF-16 units."""
        (tmp_path / "a.py").write_bytes("aé\r\n\f𝒳b\rc\n".encode())
        snapshot = place.snapshot(place.Place(tmp_path / "a.py", line, column))
        assert (snapshot.prefix, snapshot.suffix) == (prefix, suffix)

    def test_a_byte_order_mark_is_no_character(self, tmp_path):
        (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfx")
        assert place.snapshot(place.Place(tmp_path / "a.py", 1, 2)).prefix == "x"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without a fault: a tiny model with the embedded pair's tokenizer."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "good")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """One to damage."""
    return shutil.copytree(good, tmp_path / "copy")


class TestCheckpoints:
    """What can be wrong with a model: one line, 2, and the line names option and model."""

    def fails(self, stack: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
        assert main(["complete", f"{stack}:{CURSOR}", "--device", "cpu", *options]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert len(err.splitlines()) == 1, err
        return err

    def test_a_good_one(self, stack, good, capsys):
        options = ["--target", str(good), "--draft", str(good), "--max-tokens", "3", "--raw"]
        assert main(["complete", f"{stack}:{CURSOR}", *options]) == 0
        out, err = capsys.readouterr()
        assert out
        assert not err

    def test_missing(self, stack, tmp_path, capsys):
        assert "--target: " in self.fails(stack, capsys, "--target", str(tmp_path / "none"))

    def test_an_unknown_pair(self, stack, capsys):
        assert "embedded" in self.fails(stack, capsys, "--pair", "qwen-9000")

    def test_no_config(self, stack, copy, capsys):
        (copy / "config.json").unlink()
        assert "config.json" in self.fails(stack, capsys, "--target", str(copy))

    def test_a_damaged_config(self, stack, copy, capsys):
        (copy / "config.json").write_text("{")
        assert str(copy) in self.fails(stack, capsys, "--target", str(copy))

    def test_cut_weights(self, stack, copy, capsys):
        os.truncate(copy / "model.safetensors", 1000)
        assert "--target: " in self.fails(stack, capsys, "--target", str(copy))

    def test_missing_weights(self, stack, copy, capsys):
        """transformers itself only warns, and completes with random numbers."""
        from safetensors.torch import load_file, save_file

        weights = load_file(copy / "model.safetensors")
        weights.pop("model.layers.0.mlp.up_proj.weight")
        save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
        assert "1 parameter is missing" in self.fails(stack, capsys, "--target", str(copy))

    def test_no_tokenizer(self, stack, copy, capsys):
        for path in copy.glob("tokenizer*"):
            path.unlink()
        assert "--target: " in self.fails(stack, capsys, "--target", str(copy))

    def test_another_tokenizer(self, stack, good, copy, capsys):
        other = json.loads((copy / "tokenizer.json").read_text())
        vocabulary = other["model"]["vocab"]
        first, second = list(vocabulary)[300:302]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        (copy / "tokenizer.json").write_text(json.dumps(other))
        err = self.fails(stack, capsys, "--target", str(good), "--draft", str(copy))
        assert "--draft: " in err
        assert "different tokenizers" in err

    def test_no_fim_tokens(self, stack, copy, capsys):
        for path in copy.glob("tokenizer*.json"):
            path.write_text(path.read_text().replace("fim_", "nothing_"))
        assert "fill-in-the-middle" in self.fails(stack, capsys, "--target", str(copy), "--draft", "none")

    def test_no_gpu(self, stack, monkeypatch, capsys):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert "--device: " in self.fails(stack, capsys, "--device", "cuda")

    def test_a_drafter_without_a_draft(self, stack, good, capsys):
        options = ["--target", str(good), "--draft", "none", "--drafter", "model"]
        assert "--drafter: " in self.fails(stack, capsys, *options)


def write_checkpoint(folder: Path) -> Path:
    """One layer of random numbers with the embedded pair's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from engine.embedded import FOLDER

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16_384,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FOLDER / name, folder)
    return folder


class TestProcess:
    """As a program of its own."""

    def start(self, stack: Path, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lsp_server", "complete", f"{stack}:1:1", "--raw", *options]
        # What a shell starts beside itself ignores interrupts, and so does what that starts.
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_heed_interrupts)

    def test_an_interrupt_in_the_middle(self, stack):
        """Failed with the text printed at the end: the process was over when its first byte came."""
        process = self.start(stack, "--temperature", "2", "--seed", "1", "--max-tokens", "800")
        assert process.stdout.read(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, b"")

    def test_a_reader_that_leaves(self, stack):
        process = self.start(stack, "--temperature", "2", "--seed", "1", "--max-tokens", "60")
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
