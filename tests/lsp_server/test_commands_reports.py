"""The commands that report to people: demo, doctor, prove, pairs and export, on the embedded pair."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import engine.proof
from engine.config import ConfigError, EngineConfig
from engine.generation import generate
from engine.loading import LoadedPair, load
from engine.pairs import KNOWN_PAIRS
from engine.proof import Difference, Equality, ExactTables
from engine.request import CompletionRequest
from lsp_server.cli import main
from lsp_server.commands import demo, prove
from lsp_server.commands.demo_holes import demo_holes

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return load(EngineConfig(device="cpu", dtype="float32"))


@pytest.fixture
def loaded(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The commands without the second that loading takes; the configurations they asked for."""
    asked: list[EngineConfig] = []

    def load_pair(config: EngineConfig) -> LoadedPair:
        asked.append(config)
        return pair

    for command in ("demo", "doctor", "prove"):
        monkeypatch.setattr(f"lsp_server.commands.{command}.load_pair", load_pair)
    return asked


class TestDemo:
    @pytest.fixture(autouse=True)
    def one_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo, "_ROUNDS", 1)

    @pytest.mark.usefixtures("loaded")
    def test_without_a_terminal(self, pair, capsys):
        """Failed with force_terminal: colour codes in a file."""
        assert main(["demo"]) == 0
        out, err = capsys.readouterr()
        assert not err
        assert ESCAPE not in out
        assert max(map(len, out.splitlines())) <= 80
        assert "Identical 5 of 5." in out
        shown = re.findall("«(.*?)»", out, re.DOTALL)[1:]  # the first is the legend's
        for hole, text in zip(demo_holes(), shown, strict=True):
            request = CompletionRequest(hole.prefix, hole.suffix, hole.path)
            *_, last = generate(pair, request, None)
            assert text == last.completion.text != ""

    @pytest.mark.usefixtures("loaded")
    def test_the_colours_are_the_decoders(self, pair, monkeypatch, capsys):
        """Failed with the two colours exchanged, and with `index <= step.accepted`."""
        terminal = Console(force_terminal=True, color_system="standard", width=80, highlight=False, markup=False)
        monkeypatch.setattr(demo, "console", lambda: terminal)
        pair = replace(pair, policy=None)  # which learns from each run, and in float32 here guesses nothing at all
        hole = demo_holes()[0]
        request = CompletionRequest(hole.prefix, hole.suffix, hole.path)
        *_, last = generate(pair, request, pair.drafter())
        demo._show(terminal, pair, request)
        out = capsys.readouterr().out
        guessed, left = 0, last.completion.tokens
        for accepted in last.completion.accepted_lengths:  # counts the end of the text, too, which is not shown
            guessed += min(accepted, left)
            left -= accepted + 1
        assert out.count(f"{ESCAPE}[1;32m") == guessed > 0
        assert out.count(f"{ESCAPE}[1;33m") == last.completion.tokens - guessed > 0
        assert "«" not in out

    @pytest.mark.usefixtures("loaded")
    def test_a_difference_is_said(self, monkeypatch, capsys):
        """Failed with `identical` always true."""
        real = demo._complete

        def one_differs(pair, request, *, speculate):
            completion = real(pair, request, speculate=speculate)
            if speculate and request.path == "user.py":
                return replace(completion, token_ids=completion.token_ids[:-1])
            return completion

        monkeypatch.setattr(demo, "_complete", one_differs)
        assert main(["demo"]) == 0
        out = capsys.readouterr().out
        assert "Identical 4 of 5." in out
        assert "--dtype float32" in out

    @pytest.mark.usefixtures("loaded")
    def test_sampled_text_is_not_called_identical(self, capsys):
        assert main(["demo", "--mode", "sampled", "--max-tokens", "8"]) == 0
        assert "Identical" not in capsys.readouterr().out

    def test_plain_decoding_has_nothing_to_compare(self, monkeypatch, pair, capsys):
        monkeypatch.setattr(demo, "load_pair", lambda config: replace(pair, draft=None))
        monkeypatch.setattr(LoadedPair, "drafter", lambda self: None)
        assert main(["demo", "--draft", "none"]) == 2
        assert "--draft none" in capsys.readouterr().err


class TestDoctor:
    @pytest.mark.usefixtures("loaded")
    def test_all_is_well(self, capsys):
        assert main(["doctor", "--device", "cpu"]) == 0
        out, err = capsys.readouterr()
        assert not err
        assert {line.split()[0] for line in out.splitlines()} == {"ok"}
        for part in ("torch 2.", "cpu", "embedded", "agree", "suffix first: <|fim_suffix|>", "2048", "32 tokens", "MB"):
            assert part in out
        assert "speculative equals plain decoding" in out

    @pytest.mark.usefixtures("loaded")
    def test_json(self, capsys):
        assert main(["doctor", "--device", "cpu", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["ok"]
        names = [check["name"] for check in report["checks"]]
        assert names[:3] == ["versions", "device", "pair"]
        assert names[-3:] == ["plain", "speculative", "greedy"]

    def test_a_model_that_is_not_there(self, tmp_path, capsys):
        """Failed with the fault raised: the other checks were not printed."""
        assert main(["doctor", "--device", "cpu", "--target", str(tmp_path / "none")]) == 2
        out, err = capsys.readouterr()
        assert "problem  pair" in out
        assert "give a folder" in out
        assert "ok       device" in out
        assert len(err.splitlines()) == 1

    @pytest.mark.usefixtures("loaded")
    def test_a_completion_that_fails_is_ours(self, monkeypatch, capsys):
        def broken(*_: object) -> object:
            raise RuntimeError("the user's code")

        monkeypatch.setattr("engine.generation.generate", broken)
        assert main(["doctor", "--device", "cpu"]) == 1
        out = capsys.readouterr().out
        assert "problem  self-test" in out
        assert "RuntimeError" in out
        assert "the user's code" not in out

    @pytest.mark.usefixtures("loaded")
    @pytest.mark.parametrize(
        ("dtype", "margin", "code"), [("float32", 0.01, 1), ("bfloat16", 0.01, 0), ("bfloat16", 2.0, 1)]
    )
    def test_a_difference_is_ours_unless_it_is_a_tie(self, dtype, margin, code, pair, monkeypatch, capsys):
        unequal = Equality(1, 0, 0, 32, 30, 20, 10, (Difference(0, 3, margin),))
        monkeypatch.setattr(engine.proof, "equality", lambda *_, **__: unequal)
        monkeypatch.setattr("lsp_server.commands.doctor.load_pair", lambda config: replace(pair, dtype=dtype))
        assert main(["doctor", "--device", "cpu"]) == code
        assert ("problem  greedy" in capsys.readouterr().out) == bool(code)

    @pytest.mark.usefixtures("loaded")
    def test_a_gpu_that_torch_cannot_use(self, monkeypatch, capsys):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        assert main(["doctor"]) == 2
        out, err = capsys.readouterr()
        assert "problem  device" in out
        assert "install a CUDA build" in err


@pytest.fixture(scope="module")
def one_table() -> ExactTables:
    return engine.proof.exact_tables(tables=1)


class TestProve:
    @pytest.fixture(autouse=True)
    def few_tables(self, one_table: ExactTables, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exact proof has its own tests, and takes its time."""
        monkeypatch.setattr(engine.proof, "exact_tables", lambda **_: one_table)

    def test_all_parts(self, loaded, tmp_path, capsys):
        """Failed with `any` in place of `all` in the outcome."""
        picture = tmp_path / "law.svg"
        options = ["--draws", "50", "--holes", "1", "--temperature", "1", "--plot", str(picture)]
        assert main(["prove", *options]) == 0
        out, err = capsys.readouterr()
        assert not err
        for part in ("sampled chain", "[0.20 0.30 0.10]", "identical 1 of 1", "50 completions", "Every bound holds."):
            assert part in out
        assert out.count("standard errors") == 2 * len(
            engine.proof.PROMPTS
        )  # of model and merged; one law: the one that was asked for
        assert picture.read_text().startswith("<?xml")
        assert [config.dtype for config in loaded] == ["float32"]

    @pytest.mark.usefixtures("loaded")
    def test_a_bound_that_fails(self, monkeypatch, capsys):
        unequal = Equality(1, 0, 1, 32, 30, 20, 10, (Difference(0, 3, 0.5),))
        monkeypatch.setattr(engine.proof, "equality", lambda *_, **__: unequal)
        assert main(["prove", "--draws", "1", "--holes", "1"]) == 1
        out = capsys.readouterr().out
        assert "holes: failed" in out
        assert "hole 0, token 3" in out
        assert "A bound does not hold" in out

    def test_a_given_dtype_stays(self, loaded, monkeypatch):
        def stop(*_: object, **__: object) -> None:
            raise ConfigError("pair", "seen enough")

        monkeypatch.setattr(engine.proof, "exact_tables", stop)
        assert main(["prove", "--dtype", "bfloat16"]) == 2
        assert [config.dtype for config in loaded] == ["bfloat16"]

    @pytest.mark.usefixtures("loaded")
    def test_a_picture_that_cannot_be_drawn(self, monkeypatch, tmp_path, capsys):
        """Said before the work begins."""
        monkeypatch.setattr("lsp_server.commands.prove.find_spec", lambda name: None)
        assert main(["prove", "--plot", str(tmp_path / "p.png")]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert "specter-ls[plot]" in err


class TestPairs:
    def test_every_pair_with_licence_and_memory(self, capsys):
        assert main(["pairs"]) == 0
        out, err = capsys.readouterr()
        assert not err
        assert max(map(len, out.splitlines())) <= 80
        for pair in KNOWN_PAIRS:
            assert re.search(rf"^{pair.name} .*{re.escape(pair.fim)} .*{re.escape(pair.licence)}$", out, re.MULTILINE)

    def test_json(self, capsys):
        """For the editors, which should not have to read a table."""
        assert main(["pairs", "--json"]) == 0
        out, _ = capsys.readouterr()
        document = {pair["name"]: pair for pair in json.loads(out)["pairs"]}
        assert list(document) == [pair.name for pair in KNOWN_PAIRS]
        assert document["embedded"]["here"] is True
        assert document["codestral-22b"]["draft"] is None
        large = document["qwen2.5-coder-32b"]
        assert large["target"]["model"] == "Qwen/Qwen2.5-Coder-32B"
        assert large["target"]["parameters"] == 32_800_000_000
        assert large["draft"]["presence"] in ("on this machine", "partly on this machine", "not on this machine")
        assert (large["fim"], large["licence"], large["memoryGb"]) == ("qwen", "Apache-2.0", 68.84)

    def test_presence(self, tmp_path, monkeypatch, capsys):
        """Failed with "on this machine" as soon as the configuration is there: a download may have been broken off."""
        import huggingface_hub.constants

        from lsp_server.commands import pairs

        cache = tmp_path / "hub"
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(
            huggingface_hub,
            "try_to_load_from_cache",
            lambda model, name: _cached(cache / model / name),
        )
        folder = cache / "Some" / "Model"
        assert pairs.presence("Some/Model") == "not on this machine"
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
        assert pairs.presence("Some/Model") == "partly on this machine"
        (folder / "model.safetensors").touch()
        assert pairs.presence("Some/Model") == "on this machine"
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "model-1.safetensors").touch()
        assert pairs.presence("Some/Model") == "partly on this machine"
        (folder / "model-2.safetensors").touch()
        assert pairs.presence("Some/Model") == "on this machine"


def _cached(path: Path) -> str | None:
    return str(path) if path.exists() else None


class TestExport:
    def test_the_folders_are_the_embedded_pair(self, pair, tmp_path, capsys):
        """Completes with the exported pair as the embedded one does."""
        assert main(["export", str(tmp_path / "pair")]) == 0
        out, err = capsys.readouterr()
        assert str(tmp_path / "pair" / "target") in out
        assert not err
        config = EngineConfig(
            target=str(tmp_path / "pair/target"), draft=str(tmp_path / "pair/draft"), device="cpu", dtype="float32"
        )
        exported = load(config)
        hole = demo_holes()[0]
        request = CompletionRequest(hole.prefix, hole.suffix, hole.path)
        texts = []
        for loaded_pair in (pair, exported):
            *_, last = generate(loaded_pair, request, loaded_pair.drafter())
            texts.append(last.completion.text)
        assert texts[0] == texts[1]

    @pytest.mark.parametrize("role", ["target", "draft"])
    def test_nothing_is_overwritten(self, role, tmp_path, capsys):
        """Failed with the check left to `embedded.export`: it had written the target when the draft was in its way."""
        (tmp_path / role).mkdir()
        assert main(["export", str(tmp_path)]) == 2
        assert f"{tmp_path / role} exists already" in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == [role]

    def test_a_file_in_the_way(self, tmp_path, capsys):
        (tmp_path / "file").touch()
        assert main(["export", str(tmp_path / "file")]) == 2
        err = capsys.readouterr().err
        assert "cannot be written" in err
        assert len(err.splitlines()) == 1


def test_a_proof_says_how_long_it_takes(capsys):
    """Seen to fail: with the fraction of one prompt taken for that of all."""
    seconds, shown = iter([0.0, 30.0, 60.0, 90.0, 120.0]), []
    clock = prove._Clock(parts=2, now=lambda: next(seconds))
    report = clock.shown(shown.append)
    for fraction in (0.5, 1.0, 0.5, 1.0):
        report(fraction)
    assert shown == [
        "first tokens 25%, about 2 min left",
        "first tokens 50%, about 60 s left",
        "first tokens 75%, about 30 s left",
        "first tokens 100%, about 0 s left",
    ]
    assert capsys.readouterr().out == "  about 2 min in all; fewer --draws take less\n"
