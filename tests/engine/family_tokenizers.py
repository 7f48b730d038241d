"""A small tokenizer for each model family: its real special tokens, flags and BOS, and a vocabulary of a few lines.

Which tokens are flagged special is as published: in Qwen and Granite 4 the markers are not.
"""

from __future__ import annotations

import string
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import CodeLlamaTokenizer, PreTrainedTokenizerFast

_TEXT = ["def total(items):\n    result = 0\n    return result\n", "import os\n\nclass Shop:\n    path = 'a.py'\n"] * 3

_STARCODER = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
_ONE_FILE = ("<filename>", "<gh_stars>", "<issue_start>", "<commit_before>", "<reponame>")
_PIPED = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")

# eos, bos that is put before every text (or ""), tokens flagged special, added tokens that are not
BYTE_LEVEL: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "qwen": (
        "<|endoftext|>",
        "",
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        ("<tool_call>", "</tool_call>", *_PIPED, "<|repo_name|>", "<|file_sep|>"),
    ),
    "granite-4": (
        "<|end_of_text|>",
        "",
        ("<|pad|>", "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
        (*_PIPED, "<|filename|>", "<|reponame|>", "<tool_call>"),
    ),
    "starcoder2": ("<|endoftext|>", "", (*_STARCODER, "<repo_name>", "<file_sep>", "<issue_start>"), ()),
    "starcoder": ("<|endoftext|>", "", (*_STARCODER, *_ONE_FILE), ()),  # Granite-code and Refact have the same
    "starcoder-like": ("<|endoftext|>", "", ("<|im_start|>", "<|im_end|>", *_STARCODER), ()),  # CodeQwen1.5
    "mellum": ("<|endoftext|>", "", (*_STARCODER, *_ONE_FILE, "<system>", "</system>", "<user>", "<think>"), ()),
    "santacoder": (
        "<|endoftext|>",
        "",
        ("<|endoftext|>", "<fim-prefix>", "<fim-middle>", "<fim-suffix>", "<fim-pad>"),
        (),
    ),
    "deepseek": (
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<|EOT|>"),
    ),
    "seed-coder": (
        "<[end▁of▁sentence]>",
        "<[begin▁of▁sentence]>",
        ("<[begin▁of▁sentence]>", "<[end▁of▁sentence]>", "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
        (),
    ),
}
SENTENCE_PIECE = ("codellama", "codestral", "codegemma")
FAMILY_NAMES = (*BYTE_LEVEL, *SENTENCE_PIECE)


@cache
def family_tokenizer(name: str) -> Any:
    """As transformers loads it."""
    if name in BYTE_LEVEL:
        return _byte_level(*BYTE_LEVEL[name])
    return {"codellama": _codellama, "codestral": _codestral, "codegemma": _codegemma}[name]()


def _byte_level(eos: str, bos: str, special: tuple[str, ...], ordinary: tuple[str, ...]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(_TEXT, trainer)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in ordinary])
    return PreTrainedTokenizerFast(tokenizer_object=_starting(backend, bos), eos_token=eos, bos_token=bos or None)


def _starting(backend: Tokenizer, bos: str) -> Tokenizer:
    if bos:
        single, begin = f"{bos}:0 $A:0", (bos, backend.token_to_id(bos))
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=[begin])
    return backend


def _pieces(*special: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a SentencePiece BPE with byte fallback, its control tokens first."""
    letters = [*string.printable.replace(" ", "").replace("\n", "").replace("\r", ""), "▁"]
    merges = [("▁", "▁"), ("▁▁", "▁▁"), ("▁", "r"), ("▁", "d"), ("d", "e"), ("▁", "#"), ("i", "n"), ("r", "e")]
    names = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *("".join(pair) for pair in merges)]
    return {name: index for index, name in enumerate(dict.fromkeys(names))}, merges


def _codellama() -> CodeLlamaTokenizer:
    """The class that transformers has for it; the markers are pieces of the vocabulary."""
    vocabulary, merges = _pieces("<unk>", "<s>", "</s>")
    for marker in ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"):
        vocabulary[marker] = len(vocabulary)
    return CodeLlamaTokenizer(vocab=vocabulary, merges=merges)


def _codestral() -> PreTrainedTokenizerFast:
    """Mistral's v3 tokenizer: a space before every text, control tokens at the start of the vocabulary."""
    control = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]")
    vocabulary, merges = _pieces(*control)
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=_starting(backend, "<s>"), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _codegemma() -> PreTrainedTokenizerFast:
    """Gemma's: no space before a text, <bos> before every text."""
    control = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
    fim = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_separator|>")
    vocabulary, merges = _pieces(*control, *fim)
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*control, *fim)])
    return PreTrainedTokenizerFast(
        tokenizer_object=_starting(backend, "<bos>"),
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<pad>",
    )
