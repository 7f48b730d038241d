"""From a request to the target's prompt: fill-in-the-middle layouts, token budgets, markers built by id."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.request import CompletionRequest, Snippet


class Tokenizer(Protocol):
    """What the engine uses of a transformers tokenizer."""

    init_kwargs: Mapping[str, object]
    eos_token_id: int | None
    all_special_tokens: Sequence[str]

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...
    def get_vocab(self) -> dict[str, int]: ...
    def get_added_vocab(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class FimFormat:
    """The markers of one model family and their order. A marker that a tokenizer lacks is left out, the first three
    (`middle` may be empty) must exist. `ends` are markers that can only mean the middle is over.
    """

    name: str
    prefix: str
    suffix: str
    middle: str
    suffix_first: bool = False
    file: str = ""
    repository: str = ""
    ends: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, of those that the family has."""
        names = (self.prefix, self.suffix, self.middle, self.file, self.repository, *self.ends)
        return tuple(name for name in names if name)


# One row a family; the first whose markers the tokenizer knows is taken. Sources: the models' own cards and code.
FORMATS = (
    FimFormat(
        "qwen",  # Qwen2.5-Coder, Qwen3-Coder, CodeGemma, Granite 4, the embedded pair
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        file="<|file_sep|>",
        repository="<|repo_name|>",
        ends=("<|fim_pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|file_separator|>"),
    ),
    FimFormat(
        "starcoder",  # StarCoder, StarCoder2, Granite-code, Refact
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        file="<file_sep>",
        repository="<repo_name>",
        ends=("<fim_pad>", "<|endoftext|>", "<filename>", "<reponame>"),
    ),
    FimFormat("santacoder", "<fim-prefix>", "<fim-suffix>", "<fim-middle>", ends=("<fim-pad>", "<|endoftext|>")),
    FimFormat(
        "deepseek",
        "<｜fim▁begin｜>",
        "<｜fim▁hole｜>",
        "<｜fim▁end｜>",
        ends=("<｜end▁of▁sentence｜>", "<|EOT|>"),
    ),
    FimFormat("codellama", "▁<PRE>", "▁<SUF>", "▁<MID>", ends=("▁<EOT>",)),
    FimFormat("codestral", "[PREFIX]", "[SUFFIX]", "", suffix_first=True),
    FimFormat("seed-coder", "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True),
)


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """The prompt as ids and as text with its markers, and the parts of the document that are in it."""

    ids: tuple[int, ...]
    text: str
    prefix: str
    suffix: str
    snippets: tuple[Snippet, ...]

    @property
    def tokens(self) -> int:
        return len(self.ids)


class PromptBuilder:
    """Lays out prompts for one tokenizer. Raises LookupError if the tokenizer has no fill-in-the-middle markers.

    The layout keeps what changes least in front, so that the next keystroke shares a long prefix of ids with the last
    one: other files, then suffix and prefix in the family's order. Texts are cut at line starts, in coarse steps:
    a cut that moved with each new line would shift everything behind it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = tokenizer.get_vocab()
        self.format = detect(tokenizer)
        self._markers = re.compile("|".join(map(re.escape, sorted(self._marker_texts(), key=len, reverse=True))))
        letter, line_end = (tokenizer.encode(text, add_special_tokens=False) for text in ("a", "\n"))
        whole = tokenizer.encode("a", add_special_tokens=True)
        self._start = whole[: whole.index(letter[0])]  # what the family puts before every text: BOS or nothing
        # SentencePiece writes a space in front of every text, also of one that goes on after a marker.
        after_line_end = tokenizer.encode("\na", add_special_tokens=False)[len(line_end) :]
        self._line_end = line_end if after_line_end != letter else []

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids that end a middle: end of text and every marker, none of which may reach the user."""
        ends = {self._ids[name] for name in self.format.markers if name in self._ids}
        return frozenset(ends if self._tokenizer.eos_token_id is None else ends | {self._tokenizer.eos_token_id})

    @property
    def prefix_marker(self) -> int:
        return self._ids[self.format.prefix]

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        """A prompt of at most `budget` tokens (≥ 16). The suffix gets up to a quarter, other files up to a quarter."""
        room = max(budget - 8, 1)  # BOS, the three markers, the repository's
        suffix, suffix_ids = self._head(request.suffix, room // 4)
        snippets, header = self._header(request, room // 4)
        left = room - len(suffix_ids) - sum(len(ids) + 1 for _, ids in header)
        assert left >= 0, (budget, left)
        prefix, prefix_ids = self._tail(request.prefix, left, step=max(room // 2, 1))
        form = self.format
        before, after = [(form.prefix, prefix_ids)], [(form.suffix, suffix_ids)]
        pieces = [*header, *(after + before if form.suffix_first else before + after), (form.middle, [])]
        ids = list(self._start)
        for marker, content in pieces:
            ids += [self._ids[marker]] if marker else []
            ids += content
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return EncodedPrompt(tuple(ids), text, prefix, suffix, snippets)

    def plain(self, text: str, continued: bool = False) -> list[int]:
        """Ids of text in which a marker is ordinary text: no part that is encoded holds a whole one.

        continued: the text goes on in the middle of a line, so it must not get SentencePiece's leading space.
        """
        ids: list[int] = []
        start = 0
        while match := self._markers.search(text, start):
            ids += self._encode(text[start : match.start() + 1], continued or start > 0)
            start = match.start() + 1
        return ids + self._encode(text[start:], continued or start > 0)

    def _encode(self, text: str, continued: bool) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if not continued or not self._line_end:
            return ids
        # As CodeLlama and Mistral encode a suffix: behind a text of known ids, which are then taken off.
        anchored = self._tokenizer.encode("\n" + text, add_special_tokens=False)
        known = len(self._line_end)
        return anchored[known:] if anchored[:known] == self._line_end else ids

    def _header(
        self, request: CompletionRequest, budget: int
    ) -> tuple[tuple[Snippet, ...], list[tuple[str, list[int]]]]:
        """The pieces before the document: repository, other files, its own path; whole snippets that fit, in order."""
        form = self.format
        own = self.plain(request.path + "\n")
        used = len(own) + 1
        if form.file not in self._ids or not request.path or used > budget:
            return (), []
        pieces, snippets = list[tuple[str, list[int]]](), list[Snippet]()
        if request.repository and form.repository in self._ids:
            repository = self.plain(request.repository + "\n")
            if used + len(repository) <= budget:
                pieces.append((form.repository, repository))
                used += len(repository)
        for snippet in request.snippets:
            ids = self.plain(f"{snippet.path}\n{snippet.text}")
            if used + len(ids) + 1 <= budget:
                pieces.append((form.file, ids))
                snippets.append(snippet)
                used += len(ids) + 1
        return tuple(snippets), [*pieces, (form.file, own)]

    def _tail(self, text: str, budget: int, step: int) -> tuple[str, list[int]]:
        """The end of `text` in at most `budget` tokens, from a line start where there is one.

        The cut is looked for from multiples of `step` characters on. A grid that depends on nothing that was typed
        moves it once in `step` keystrokes; a cut that follows the number of tokens moves with every other one.
        """
        cut = max(len(text) - 4 * budget, 0)  # code has 3 to 5 characters a token
        cut = -(-cut // step) * step
        while True:
            kept = _from_line_start(text, cut)
            ids = self.plain(kept)
            if len(ids) <= budget:
                return kept, ids
            if cut + step >= len(text):  # dense text: less than a step of it fits
                step = max(step // 2, 1)
            cut = (cut // step + 1) * step

    def _head(self, text: str, budget: int) -> tuple[str, list[int]]:
        """The start of `text` in at most `budget` tokens, up to a line end where there is one."""
        size = 4 * budget
        while True:
            cut = text[:size]
            if size < len(text):
                cut = cut[: cut.rfind("\n") + 1] or cut
            ids = self.plain(cut, continued=True)
            if len(ids) <= budget:
                return cut, ids
            size = min(size - 1, len(cut) * budget // len(ids))

    def _marker_texts(self) -> set[str]:
        known = {name for form in FORMATS for name in form.markers} | set(self._tokenizer.all_special_tokens)
        known |= set(self._tokenizer.get_added_vocab())
        return {name for name in known if name in self._ids and len(name) > 1 and name.strip()}


def detect(tokenizer: Tokenizer) -> FimFormat:
    """The family's format. A checkpoint may say `"fim_order": "suffix-first"` in its tokenizer configuration."""
    vocabulary = tokenizer.get_vocab()
    for form in FORMATS:
        if all(marker in vocabulary for marker in (form.prefix, form.suffix, form.middle) if marker):
            order = tokenizer.init_kwargs.get("fim_order")
            return form if order is None else replace(form, suffix_first=order == "suffix-first")
    raise LookupError("no fill-in-the-middle tokens")


def _from_line_start(text: str, cut: int) -> str:
    """The text from the first line start at or after `cut`; from `cut` itself if no line starts there any more."""
    if cut <= 0:
        return text
    start = text.find("\n", cut - 1) + 1
    return text[start:] if 0 < start < len(text) else text[cut:]
