"""From a request to what is sent to a server: token ids, text with markers, or prefix and suffix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from engine.prompt import EncodedPrompt, PromptBuilder, Tokenizer
from engine.remote.characters import CharacterTokenizer, cut_markers, defused, looks_like_a_marker
from engine.request import CompletionRequest

CHARACTERS_PER_TOKEN = 3  # code has 3 to 5: the bound that keeps a prompt within the context
Tokenise = Callable[[str], Awaitable[list[int]]]


class Layout(Protocol):
    """How this server is sent a prompt."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def other_files(self) -> bool:
        """Whether the model was trained to see them."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Markers that end a middle; its text must not hold them."""

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        """A prompt of at most `budget` tokens."""

    async def fields(self, prompt: EncodedPrompt) -> dict[str, Any]:
        """`prompt`, and `suffix` where that is the server's way. Raises RemoteError."""


class IdsLayout:
    """With the model's own tokenizer here: the very ids that the local engine would compute on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._builder = PromptBuilder(tokenizer)
        self.name = f"{self._builder.format.name} as token ids"
        self.other_files = _reads_other_files(self._builder) and bool(tokenizer.init_kwargs.get("other_files", True))
        self.ends = self._builder.format.markers
        self.end_ids = sorted(self._builder.end_tokens)

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        return self._builder.build(request, max(budget, 16))

    async def fields(self, prompt: EncodedPrompt) -> dict[str, Any]:
        return {"prompt": list(prompt.ids)}


class TextLayout:
    """Markers as text. The user's text may look like one: then the server's tokenizer is asked for the ids of its
    parts, and without one the look is spoilt by a space."""

    def __init__(self, markers: Collection[str], tokenise: Tokenise | None) -> None:
        self._characters = CharacterTokenizer(markers)
        self._builder = PromptBuilder(self._characters)
        self._tokenise = tokenise
        self.name = f"{self._builder.format.name} as text"
        self.other_files = _reads_other_files(self._builder)
        self.ends = tuple(name for name in self._builder.format.markers if name in markers)

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        return self._builder.build(request, max(CHARACTERS_PER_TOKEN * budget, 64))

    async def fields(self, prompt: EncodedPrompt) -> dict[str, Any]:
        pieces = list(self._characters.pieces(prompt.ids))
        if not any(looks_like_a_marker(text) for is_marker, text in pieces if not is_marker):
            return {"prompt": prompt.text}
        if self._tokenise is None:
            return {"prompt": "".join(text if is_marker else defused(text) for is_marker, text in pieces)}
        ids = list[int]()
        for is_marker, text in pieces:
            for part in [text] if is_marker else cut_markers(text):
                ids += await self._tokenise(part)
        return {"prompt": ids}


@dataclass(frozen=True, slots=True)
class SuffixLayout:
    """The server lays out the prompt: `suffix` of OpenAI's completions. What it does with markers in text is its own,
    so those are spoilt."""

    name: str = "the server's suffix parameter"
    other_files: bool = False
    ends: tuple[str, ...] = ()

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        room = max(CHARACTERS_PER_TOKEN * budget, 64)
        suffix = request.suffix[: room // 4]
        prefix = request.prefix[-(room - len(suffix)) :]
        return EncodedPrompt((), f"{prefix}{suffix}", prefix, suffix, ())

    async def fields(self, prompt: EncodedPrompt) -> dict[str, Any]:
        return {"prompt": defused(prompt.prefix), "suffix": defused(prompt.suffix)}


def _reads_other_files(builder: PromptBuilder) -> bool:
    parts = builder.format.header.parts
    return any(part.of == "other" and "{commented}" not in part.template for part in parts)
