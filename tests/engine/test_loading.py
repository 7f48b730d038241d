"""Loading: what works, and one line with the key and the fix for everything that cannot."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from family_tokenizers import family_tokenizer
from packaging.version import Version, parse
from safetensors.torch import load_file, save_file
from tiny import FIM_MARKERS, byte_tokenizer, tiny_model, uncached_logits, write_checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

from engine import embedded
from engine.bench.gguf_file import write_gguf
from engine.checkpoints import embedded_model
from engine.config import ConfigError, EngineConfig
from engine.embedded import Role
from engine.generation import generate
from engine.loading import LoadedPair, load
from engine.prompt import FAMILIES
from engine.request import CompletionRequest, Sampling
from engine.sources import sources
from engine.transformers_runner import TransformersRunner


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A tiny checkpoint: 260 tokens, 272 rows."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def load_from(target: Path | str, draft: Path | str = "none", **options) -> LoadedPair:
    return load(EngineConfig(target=str(target), draft=str(draft), device="cpu", dtype="float32", **options))


def complete(pair: LoadedPair, request: CompletionRequest, plainly: bool = False):
    return list(generate(pair, request, None if plainly else pair.drafter()))[-1].completion


def change_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite_weights(folder: Path, change: Callable[[dict], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# (what is done to a checkpoint, what the message says)
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "configuration is no JSON": (lambda folder: (folder / "config.json").write_text("{no"), "not a valid JSON"),
    "configuration is a list": (lambda folder: (folder / "config.json").write_text("[]"), "its config.json or"),
    "unknown architecture": (
        lambda folder: change_config(folder, model_type="weird"),
        "does not know its architecture",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "it has no weights (model.safetensors)"),
    "weights cut short": (lambda folder: truncate(folder / "model.safetensors"), "cut short or damaged"),
    "weights are text": (lambda folder: (folder / "model.safetensors").write_text("hello"), "cannot be loaded"),
    "a tensor is missing": (
        lambda folder: rewrite_weights(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight")),
        "1 parameter is missing or of the wrong shape, such as model.layers.1.mlp.up_proj.weight",
    ),
    "a tensor has another shape": (
        lambda folder: rewrite_weights(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(7)})),
        "1 parameter is missing or of the wrong shape, such as model.norm.weight",
    ),
    "more layers than weights": (
        lambda folder: change_config(folder, num_hidden_layers=3),
        "parameters are missing or of",
    ),
    "no tokenizer": (
        lambda folder: [path.unlink() for path in folder.glob("tokenizer*")],
        "has no tokenizer (tokenizer.json)",
    ),
    "weights are no numbers": (
        lambda folder: rewrite_weights(
            folder, lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"] * float("nan")})
        ),
        "its weights are damaged: what it computes are not numbers",
    ),
    "no language model": (lambda folder: change_config(folder, model_type="clip"), "no causal language model"),
    "tokenizer is empty": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        "its config.json or its tokenizer's files",
    ),
    "tokenizer is no JSON": (lambda folder: (folder / "tokenizer.json").write_text("{"), "not valid JSON"),
    "tokenizer larger than the embedding": (
        lambda folder: byte_tokenizer(*FIM_MARKERS, *(f"<{index}>" for index in range(20))).save_pretrained(folder),
        "its tokenizer has 280 tokens but its embedding only 272 rows",
    ),
    "no fill-in-the-middle tokens": (
        lambda folder: byte_tokenizer("<|endoftext|>").save_pretrained(folder),
        "no fill-in-the-middle tokens",
    ),
}


def assert_one_line(caught: pytest.ExceptionInfo[ConfigError], key: str, says: str) -> None:
    message = str(caught.value)
    assert caught.value.key == key
    assert message.startswith(f"{key}: ")
    assert "\n" not in message
    assert "Traceback" not in message
    assert says in message
    assert len(message) < 700


@pytest.mark.parametrize("key", ["target", "draft"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint(damage: str, key: Role, checkpoint: Path, copy: Path) -> None:
    """Seen to fail: `_require_complete` taken out (transformers invents parameters), and `_require_rows`."""
    spoil, says = DAMAGES[damage]
    spoil(copy)
    if damage == "no fill-in-the-middle tokens" and key == "draft":
        says = "have different tokenizers"
    with pytest.raises(ConfigError) as caught:
        load_from(copy) if key == "target" else load_from(checkpoint, copy)
    assert_one_line(caught, key, says)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("/no/such/folder", "/no/such/folder is not a model folder"),
        ("../nothing", "is not a model folder"),
        ("~nobody-here/model", "is not a path (Could not determine home directory"),
        ("", "'' names no model"),
        ("  ", "names no model"),
        ("word", "word is not a model folder"),
        ("a/b/c", "a/b/c is not a model folder"),
        ("https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B", "is not a model folder"),
        ("x" * 5000, "is not a path (File name too long)"),
        ("nul\0byte", "is not a model folder"),
        ("no/such.gguf", "no/such.gguf does not exist"),
        ("nobody-here/no-such-model", "is not on this machine: HF_HUB_OFFLINE is set; unset it to download; or give"),
    ],
)
def test_no_such_model(source: str, says: str) -> None:
    """Seen to fail: a home that does not exist and a name too long came as tracebacks; '' was the current folder."""
    started = time.perf_counter()
    with pytest.raises(ConfigError) as caught:
        load_from(source)
    assert_one_line(caught, "target", says)
    assert "give a folder with a Hugging Face checkpoint" in str(caught.value)
    assert time.perf_counter() - started < 10, "the network is not there, and was waited for"


@pytest.mark.parametrize("content", [b"", b"not GGUF at all" * 50, b"GGUF\3\0\0\0" + b"\xff" * 100])
def test_a_gguf_file_of_garbage(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_from(tmp_path / "model.gguf")
    assert_one_line(caught, "target", "model.gguf cannot be loaded")


def test_a_recurrent_model(tmp_path: Path) -> None:
    config = AutoConfig.for_model("mamba", hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=272)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer(*FIM_MARKERS).save_pretrained(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_from(tmp_path)
    assert_one_line(caught, "target", "keeps a running state")
    assert str(caught.value).endswith("choose a model with attention only")


@pytest.mark.parametrize(
    ("options", "key", "says"),
    [
        ({"device": "tpu"}, "device", "'tpu' is not possible; use one of auto, cuda, cpu"),
        ({"dtype": "int3"}, "dtype", "use one of"),
        ({"pair": "nonesuch"}, "pair", "'nonesuch' is unknown; use auto or one of embedded, "),
        ({"drafter": "model", "draft": "none"}, "drafter", "'model' needs a draft model"),
    ],
)
def test_options_that_cannot_work(options: dict[str, str], key: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(EngineConfig(**options))
    assert_one_line(caught, key, says)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError) as caught:
        load(EngineConfig(device="cuda"))
    assert_one_line(caught, "device", "use --device cpu")


def test_a_draft_of_another_tokenizer(checkpoint: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_from(checkpoint, "embedded")
    assert_one_line(caught, "draft", "have different tokenizers")


@pytest.mark.parametrize("draft_rows", [260, 264, 272, 512])
def test_padding_may_differ(checkpoint: Path, tmp_path: Path, draft_rows: int) -> None:
    """B27: the same 260 tokens in embeddings of other sizes. Seen to fail: logits not cut to the tokenizer's ids."""
    draft = write_checkpoint(tmp_path / "draft", rows=draft_rows, seed=1)
    pair = load_from(checkpoint, draft, draft_length=3)
    assert pair.draft is not None
    assert pair.target.vocab == pair.draft.vocab == 260
    request = CompletionRequest("def f(", "):\n", max_tokens=24)
    for sampling in (Sampling(), Sampling("sampled", temperature=2.0, seed=3)):
        done = complete(pair, CompletionRequest("def f(", "):\n", max_tokens=24, sampling=sampling))
        assert max(done.token_ids, default=0) < 260
        assert done.drafted > 0
    plain = load_from(checkpoint, drafter="none")
    assert complete(pair, request).token_ids == complete(plain, request).token_ids


def test_progress_is_reported(checkpoint: Path) -> None:
    reports: list[tuple[float, str]] = []
    config = EngineConfig(target=str(checkpoint), draft=str(checkpoint), device="cpu")
    load(config, lambda fraction, what: reports.append((fraction, what)))
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert reports[-1] == (1.0, "loaded")


HOLES = [
    CompletionRequest("def total(items):\n    result = 0\n    for item in items:\n        ", "\n    return result\n"),
    CompletionRequest("import os\n\ndef read(path):\n    with open(path) as ", ":\n        return f.read()\n", "a.py"),
]


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, True),
        ({"drafter": "merged"}, True),
        ({"drafter": "lookup"}, False),
        ({"drafter": "lookahead"}, False),
        ({"heads": "file"}, False),
        ({"eagle": "file", "drafter": "merged"}, True),
    ],
)
def test_a_draft_that_nothing_would_use_is_not_loaded(options: dict[str, Any], used: bool) -> None:
    """Seen to fail: lookahead, and `auto` with trained heads, had one in memory for nothing."""
    assert (sources(EngineConfig(**options)).draft is not None) == used


def test_export_is_the_embedded_pair(tmp_path: Path, exact_pair: LoadedPair) -> None:
    """Seen to fail: the tokenizer's configuration, and with it `fim_order`, left behind."""
    embedded.export(tmp_path)
    exported = load_from(tmp_path / "target", tmp_path / "draft")
    assert exported.tokenizer.get_vocab() == exact_pair.tokenizer.get_vocab()
    assert exported.prompts.format == exact_pair.prompts.format
    for request in HOLES:
        ids = exact_pair.prompts.build(request, 200).ids
        assert exported.prompts.build(request, 200).ids == ids
        for ours, theirs in ((exported.target, exact_pair.target), (exported.draft, exact_pair.draft)):
            torch.testing.assert_close(ours.logits(ids), theirs.logits(ids), atol=1e-3, rtol=0)
        assert complete(exported, request).text == complete(exact_pair, request).text
    with pytest.raises(FileExistsError):
        embedded.export(tmp_path)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_the_embedded_pair_in_transformers(role: Role, exact_pair: LoadedPair) -> None:
    """How it runs on a GPU. Seen to fail: AutoModel, which in transformers 5.24 takes no None for a name."""
    runner = TransformersRunner(embedded_model(role, torch.float32))
    ids = exact_pair.prompts.build(HOLES[0], 200).ids
    model = exact_pair.target if role == "target" else exact_pair.draft
    torch.testing.assert_close(runner.forward(ids, 0, 1)[:, : model.vocab], model.logits(ids), atol=1e-3, rtol=0)


def test_a_gguf_file(tmp_path: Path, exact_pair: LoadedPair) -> None:
    """The embedded draft as a GGUF file is the same model: ids, layout, logits and text."""
    write_gguf(tmp_path / "draft.gguf", "draft")
    pair = load_from(tmp_path / "draft.gguf")
    assert pair.prompts.format.name == "qwen"
    text = HOLES[0].prefix + "漢 🙂 don't  \n\n\t1234"
    ids = exact_pair.tokenizer.encode(text, add_special_tokens=False)
    if parse(transformers.__version__) >= Version("5.24"):  # before, such files were split into words as for GPT-2
        assert pair.tokenizer.encode(text, add_special_tokens=False) == ids
    assert pair.end_tokens <= exact_pair.end_tokens
    prompt = pair.prompts.build(HOLES[0], 200)  # prefix first: the file does not say otherwise
    before, line = HOLES[0].prefix[:-8], HOLES[0].prefix[-8:]
    assert prompt.text == f"<|fim_prefix|>{before}<|fim_suffix|>{HOLES[0].suffix}<|fim_middle|>{line}"
    ours, theirs = pair.target.logits(ids, tail=len(ids)), exact_pair.draft.logits(ids, tail=len(ids))
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)
    assert complete(pair, HOLES[1], plainly=True).tokens > 0


def test_loaded_weights_are_the_checkpoints(checkpoint: Path) -> None:
    pair = load_from(checkpoint)
    ids = [1, 2, 3, 4, 250]
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    torch.testing.assert_close(pair.target.logits(ids), uncached_logits(model, ids)[-1:, :260], atol=1e-4, rtol=0)


def test_the_checkpoints_own_stop_ids(tmp_path: Path) -> None:
    """Seen to fail: generation_config.json not read."""
    folder = write_checkpoint(tmp_path)
    assert 7 not in load_from(folder).end_tokens
    for stop, expected in (([7, 8], {7, 8}), (9, {9})):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stop}))
        assert expected <= load_from(folder).end_tokens


def test_codellama_has_a_token_without_a_row(tmp_path: Path) -> None:
    """transformers' class adds `<FILL_ME>`. Seen to fail: "more tokens than rows"."""
    tokenizer = family_tokenizer("codellama")
    vocabulary = tokenizer.get_vocab()
    assert vocabulary["<FILL_ME>"] == max(vocabulary.values())
    tiny_model("llama", max(vocabulary.values())).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pair = load_from(tmp_path)
    assert pair.prompts.format.name == "codellama"
    assert pair.target.vocab == vocabulary["<FILL_ME>"]
    request = CompletionRequest("x = <FILL_ME>\n", "<PRE>\n", max_tokens=5)
    assert vocabulary["<FILL_ME>"] not in pair.prompts.build(request, 60).ids
    assert vocabulary["<FILL_ME>"] not in pair.end_tokens
    assert complete(pair, request, plainly=True).stop in ("eos", "max_tokens")


@pytest.mark.parametrize(
    ("family", "configuration", "reads"),
    [
        ("qwen", {}, True),
        ("qwen", {"other_files": False}, False),  # as the embedded pair
        ("starcoder2", {}, True),
        ("codellama", {}, False),  # was shown one file at a time
    ],
)
def test_who_was_trained_to_read_other_files(family: str, configuration: dict[str, object], reads: bool) -> None:
    """Seen to fail with every family that has a way of being shown them."""
    pair = load(EngineConfig(device="cpu"))
    assert not pair.reads_other_files
    (form,) = (each for each in FAMILIES if each.name == family)
    tokenizer, prompts = SimpleNamespace(init_kwargs=configuration), SimpleNamespace(format=form)
    assert replace(pair, tokenizer=tokenizer, prompts=prompts).reads_other_files == reads
