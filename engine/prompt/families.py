"""The model families that fill in the middle: their markers, their order, and how they are shown other files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

Order = Literal["prefix-first", "line-after-middle", "suffix-first", "prefix-after-middle"]


class Part(NamedTuple):
    """A piece of the header: a marker (perhaps none), a text with {path}, {text}, {repository}, {leader} or
    {commented} to fill in, a marker behind it (perhaps none). `of` says what it is there for and how often.
    """

    of: Literal["repository", "other", "own"]
    marker: str
    template: str
    end: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """What goes with the document: `before` stands before the first marker, `inside` in front of the prefix."""

    before: tuple[Part, ...] = ()
    inside: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.before + self.inside

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(marker for part in self.parts for marker in (part.marker, part.end) if marker)


# For families that were shown one file at a time: whatever else there is goes in front as comments, as in Continue.
COMMENTS = Header(inside=(Part("other", "", "{commented}"), Part("own", "", "{leader} Path: {path}\n")))


@dataclass(frozen=True, slots=True)
class Family:
    """The markers of one model family. The tokenizer must have `prefix`, `suffix`, `middle` (which may be "") and all
    of `tells`. `ends` are further tokens that can only mean that the middle is over; those it lacks are left out.

    Orders, for a prefix P, a suffix S, and the current line L up to the cursor, the end of P = P'L:

    - "prefix-first" (PSM): `<prefix>P<suffix>S<middle>`
    - "line-after-middle": `<prefix>P'<suffix>S<middle>L`: the same layout for another split of the same text, at the
      start of the line, with the first tokens of its middle given. A keystroke then only appends to the prompt, where
      in "prefix-first" it moves the whole suffix. Models trained on middles that start at random characters have seen
      such middles, but it is not free for all: the embedded target, tuned on middles that start at pauses inside a
      line, loses 0.9 nats a token by it (100 lines of httpx). So it is the default only where it is in daily use:
      llama.vim lays out every prompt so, and is made for Qwen2.5-Coder.
    - "suffix-first" (SPM): `<suffix>S<prefix>P<middle>`
    - "prefix-after-middle" (SPM, variant 2 of Bavarian et al., arXiv:2207.14255): `<prefix><suffix>S<middle>P`

    Of the embedded target, on 40 holes of the standard library, in nats a token of what the author wrote (and tokens of
    the prompt that one typed character makes new, the median): suffix-first 1.60 (2), prefix-first 1.76 (149),
    line-after-middle 2.02 (1), prefix-after-middle 2.04 (1).
    """

    name: str
    prefix: str
    suffix: str
    middle: str
    order: Order = "prefix-first"
    header: Header = COMMENTS
    ends: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, of those that the family has."""
        names = (self.prefix, self.suffix, self.middle, *self.header.markers, *self.tells, *self.ends)
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def sequence(self) -> tuple[str, ...]:
        """The three markers as they follow each other in a prompt."""
        first = (self.suffix, self.prefix) if self.order == "suffix-first" else (self.prefix, self.suffix)
        return tuple(name for name in (*first, self.middle) if name)

    def known_to(self, vocabulary: Collection[str]) -> bool:
        return all(name in vocabulary for name in (self.prefix, self.suffix, self.middle, *self.tells) if name)


_PIPED = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_PLAIN = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
_STARCODER_ENDS = ("<fim_pad>", "<|endoftext|>", "<file_sep>", "<repo_name>", "<filename>", "<reponame>", "<gh_stars>")

# One row a family; the first one that a tokenizer fits is taken. Families with the same three markers stand together,
# the one with the most telling tokens first; among them only the header can be chosen wrong, but for Mellum, whose
# `<system>` no other of them has. A model's name is never looked at.
FAMILIES = (
    Family(
        # ai.google.dev/gemma/docs/codegemma/prompt-structure, which says of the fourth token no more than "Use the file
        # separator token for multi-file contexts". A middle ends with it as well (model card).
        "codegemma",
        *_PIPED,
        header=Header(before=(Part("other", "", "{path}\n{text}", end="<|file_separator|>"),)),
        ends=("<eos>", "<end_of_turn>", "<start_of_turn>"),
        tells=("<|file_separator|>",),
    ),
    Family(
        # Granite 4: FIM with these three tokens (ibm.com/granite/docs, prompt engineering); its tokenizer also has
        # `<|filename|>` and `<|reponame|>`, of which nothing is said, so other files are shown as comments.
        "granite-4",
        *_PIPED,
        ends=("<|fim_pad|>", "<|reponame|>", "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
        tells=("<|filename|>",),
    ),
    Family(
        # Qwen2.5-Coder: README, "File-Level" and "Repository Level Code Completion"; the same README stops at the ids
        # of fim_*, repo_name, file_sep, im_end and endoftext. Qwen3-Coder: README, "Fill in the middle", which puts
        # the same prompt into a turn of a chat; here it stands alone, as for Qwen2.5-Coder. The embedded pair has these
        # names and says `"fim_order": "suffix-first"`.
        "qwen",
        *_PIPED,
        order="line-after-middle",
        header=Header(
            before=(
                Part("repository", "<|repo_name|>", "{repository}\n"),
                Part("other", "<|file_sep|>", "{path}\n{text}"),
                Part("own", "<|file_sep|>", "{path}\n"),
            )
        ),
        ends=("<|fim_pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ),
    Family(
        # Mellum-4b: model card, example with context files; SPM by arXiv:2510.05788, "S-P-M order".
        "mellum",
        *_PLAIN,
        order="suffix-first",
        header=Header(
            before=(Part("other", "<filename>", "{path}\n{text}"), Part("own", "<filename>", "{path}\n")),
        ),
        ends=_STARCODER_ENDS,
        tells=("<filename>", "<system>"),
    ),
    Family(
        # StarCoder2: arXiv:2402.19173, section 5.1: `<repo_name>reponame<file_sep>filepath0\ncode0<file_sep>
        # <fim_prefix>filepath1\ncode1_pre<fim_suffix>code1_suf<fim_middle>code1_mid<file_sep>`.
        "starcoder2",
        *_PLAIN,
        header=Header(
            before=(
                Part("repository", "<repo_name>", "{repository}"),
                Part("other", "<file_sep>", "{path}\n{text}"),
                Part("own", "<file_sep>", ""),
            ),
            inside=(Part("own", "", "{path}\n"),),
        ),
        ends=_STARCODER_ENDS,
        tells=("<file_sep>",),
    ),
    Family(
        # StarCoder: model card for the markers, the playground's formats for `<reponame>REPONAME<filename>FILENAME\n
        # code`, one file a document. FIM was applied to the document with that line (bigcode-project/Megatron-LM,
        # gpt_dataset.py). Granite-code has StarCoder's tokenizer and data format (arXiv:2405.04324).
        "starcoder",
        *_PLAIN,
        header=Header(
            inside=(
                Part("repository", "<reponame>", "{repository}"),
                Part("own", "<filename>", "{path}\n"),
                Part("other", "", "{commented}"),
            )
        ),
        ends=_STARCODER_ENDS,
        tells=("<filename>",),
    ),
    # Whatever else has these three: CodeQwen1.5, stable-code (model cards). Refact-1.6B has StarCoder's tokenizer and,
    # by its model card, its layout.
    Family("starcoder-like", *_PLAIN, ends=_STARCODER_ENDS),
    Family(
        "santacoder",  # model card, "Fill-in-the-middle"
        "<fim-prefix>",
        "<fim-suffix>",
        "<fim-middle>",
        ends=("<fim-pad>", "<|endoftext|>"),
    ),
    Family(
        # DeepSeek-Coder and -Coder-V2: READMEs, "Code Insertion" and "Repository Level Code Completion" (`#utils.py`).
        "deepseek",
        "<｜fim▁begin｜>",
        "<｜fim▁hole｜>",
        "<｜fim▁end｜>",
        header=Header(inside=(Part("other", "", "#{path}\n{text}\n"), Part("own", "", "#{path}\n"))),
        ends=("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<|EOT|>"),
    ),
    Family(
        # CodeLlama 7B, 13B: codellama/llama/generation.py, `infilling_prompt_tokens`: `<PRE> {pre} <SUF>{suf} <MID>`,
        # the spaces being part of the markers and, in front of the prefix, the one that SentencePiece puts before a
        # text; suffix and middle have none (tokenizer.py, `encode_infilling`). Ends with `<EOT>`.
        "codellama",
        "▁<PRE>",
        "▁<SUF>",
        "▁<MID>",
        ends=("▁<EOT>", "</s>"),
    ),
    Family(
        # Codestral: mistral-common, `encode_fim`: BOS, [SUFFIX], suffix without the leading space, [PREFIX], prefix;
        # no third marker. Files as `+++++ path`: Continue's template for Codestral.
        "codestral",
        "[PREFIX]",
        "[SUFFIX]",
        "",
        order="suffix-first",
        header=Header(inside=(Part("other", "", "+++++ {path}\n{text}\n\n"), Part("own", "", "+++++ {path}\n"))),
        ends=("[MIDDLE]", "</s>", "[INST]", "[/INST]"),
    ),
    Family(
        # Seed-Coder: arXiv:2506.03524, section on FIM: `<[fim-suffix]>SUFFIX<[fim-prefix]>PREFIX<[fim-middle]>MIDDLE`.
        "seed-coder",
        "<[fim-prefix]>",
        "<[fim-suffix]>",
        "<[fim-middle]>",
        order="suffix-first",
        ends=("<[end▁of▁sentence]>", "<[begin▁of▁sentence]>"),
    ),
)


def detect(vocabulary: Collection[str], settings: Mapping[str, object]) -> Family:
    """The family of a tokenizer, from its vocabulary alone. Raises LookupError if it has no markers.

    A checkpoint that was trained otherwise may name its order in its tokenizer's settings, as `"fim_order"`.
    """
    for family in FAMILIES:
        if family.known_to(vocabulary):
            order = settings.get("fim_order")
            if order in get_args(Order) and family.middle:  # without a third marker no other order can be told apart
                family = replace(family, order=order)  # type: ignore[arg-type]
            missing = [name for name in family.header.markers if name not in vocabulary]
            return replace(family, header=_without(family.header, missing)) if missing else family
    raise LookupError("no fill-in-the-middle tokens")


def _without(header: Header, missing: Collection[str]) -> Header:
    """The header of a tokenizer without some of its markers: without the repository, or else as comments."""
    gone = {part.of for part in header.parts if part.marker in missing or part.end in missing}
    if gone != {"repository"}:
        return COMMENTS

    def kept(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(part for part in parts if part.of != "repository")

    return Header(kept(header.before), kept(header.inside))
