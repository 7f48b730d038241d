"""Lays out one prompt: what goes in, in which order, within the budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.prompt.comments import commented, leader
from engine.prompt.families import Part, detect
from engine.prompt.plain import PlainText, Tokenizer
from engine.request import CompletionRequest, Snippet


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


@dataclass(frozen=True, slots=True)
class _Header:
    """What goes with the document, encoded: in front of everything, and in front of the prefix."""

    before: Sequence[int] = ()
    inside: Sequence[int] = ()
    snippets: tuple[Snippet, ...] = ()


class PromptBuilder:
    """Lays out prompts for one tokenizer. Raises LookupError if the tokenizer has no fill-in-the-middle markers.

    The layout keeps what changes least in front, so that the next keystroke shares a long prefix of ids with the last
    one: other files, then suffix and prefix in the family's order. Texts are cut at line starts, in coarse steps:
    a cut that moved with each new line would shift everything behind it. `ends` are ids that the checkpoint itself
    says to stop at.
    """

    def __init__(self, tokenizer: Tokenizer, ends: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = tokenizer.get_vocab()
        self.format = detect(self._ids, tokenizer.init_kwargs)
        self._plain = PlainText(tokenizer, self.format.markers)
        special = {self._ids[name] for name in tokenizer.all_special_tokens if name in self._ids}
        eos = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        # Ids that end a middle: end of text and every marker, none of which may reach the user.
        self.end_tokens = self._plain.reserved | special | {*eos, *ends}

    @property
    def fim_markers(self) -> tuple[int, int, int | None]:
        """Ids of the markers in front of prefix, suffix and middle; the last is None in families without."""
        form = self.format
        return self._ids[form.prefix], self._ids[form.suffix], self._ids.get(form.middle)

    def build(self, request: CompletionRequest, budget: int) -> EncodedPrompt:
        """A prompt of at most `budget` tokens (≥ 16). The suffix gets up to a quarter, other files up to a quarter."""
        room = max(budget - 8, 1)  # BOS, the three markers, the repository's
        suffix, suffix_ids = self._head(request.suffix, room // 4)
        header = self._header(request, room // 4)
        left = room - len(suffix_ids) - len(header.before) - len(header.inside)
        assert left >= 0, (budget, left)
        prefix, head, line = self._tail(request.prefix, left, max(room // 2, 1), continued=bool(header.inside))
        ids = [*self._plain.start, *header.before, *self._middle_layout([*header.inside, *head], line, suffix_ids)]
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return EncodedPrompt(tuple(ids), text, prefix, suffix, header.snippets)

    def _middle_layout(self, head: list[int], line: list[int], suffix: list[int]) -> list[int]:
        """The three texts and their markers in the family's order."""
        prefix_marker, suffix_marker, middle_marker = self.fim_markers
        middle = [] if middle_marker is None else [middle_marker]
        match self.format.order:
            case "suffix-first":
                return [suffix_marker, *suffix, prefix_marker, *head, *line, *middle]
            case "prefix-after-middle":
                return [prefix_marker, suffix_marker, *suffix, *middle, *head, *line]
            case "prefix-first":
                return [prefix_marker, *head, *line, suffix_marker, *suffix, *middle]
            case "line-after-middle":
                return [prefix_marker, *head, suffix_marker, *suffix, *middle, *line]

    def plain(self, text: str, continued: bool = False) -> list[int]:
        """Ids of text in which a marker is ordinary text; `continued` as in PlainText.encode."""
        return self._plain.encode(text, continued)

    def _header(self, request: CompletionRequest, budget: int) -> _Header:
        """The document's own path, then the repository, then whole snippets that fit, in order; laid out in theirs."""
        form = self.format.header
        own = self._encoded("own", request)
        used = _length(own)
        if not request.path or used > budget:
            return _Header()
        chosen, snippets = [own], list[Snippet]()
        if request.repository:
            repository = self._encoded("repository", request)
            length = max(_length(repository) - 1, 0)  # its marker is in the margin
            if used + length <= budget:
                chosen.append(repository)
                used += length
        for snippet in request.snippets:
            other = self._encoded("other", request, snippet)
            if used + _length(other) <= budget:
                chosen.append(other)
                snippets.append(snippet)
                used += _length(other)
        before, inside = (
            [token for part in parts for piece in chosen for token in piece.get(part, ())]
            for parts in (form.before, form.inside)
        )
        return _Header(before, inside, tuple(snippets))

    def _encoded(self, of: str, request: CompletionRequest, snippet: Snippet | None = None) -> dict[Part, list[int]]:
        """The header's parts of that kind, with their markers."""
        sign = leader(request.path)
        file = Snippet(request.path, "") if snippet is None else snippet
        fields = {"path": file.path, "text": file.text, "repository": request.repository, "leader": sign}
        if snippet is not None:
            fields["commented"] = commented(snippet, sign)
        return {
            part: self._marked(part, part.template.format(**fields))
            for part in self.format.header.parts
            if part.of == of
        }

    def _marked(self, part: Part, text: str) -> list[int]:
        start, end = ([self._ids[marker]] if marker else [] for marker in (part.marker, part.end))
        return [*start, *self.plain(text, continued=part in self.format.header.inside), *end]

    def _tail(self, text: str, budget: int, step: int, continued: bool) -> tuple[str, list[int], list[int]]:
        """The end of `text` in at most `budget` tokens, from a line start where there is one: the text, the ids of
        it, and, where the line so far stands apart, the ids of that.

        The cut is looked for from multiples of `step` characters on. A grid that depends on nothing that was typed
        moves it once in `step` keystrokes; a cut that follows the number of tokens moves with every other one.
        """
        cut = max(len(text) - 4 * budget, 0)  # code has 3 to 5 characters a token
        cut = -(-cut // step) * step
        apart = self.format.order == "line-after-middle"
        while True:
            kept = _from_line_start(text, cut)
            border = kept.rfind("\n") + 1 if apart else len(kept)
            head, line = self.plain(kept[:border], continued), self.plain(kept[border:], continued=True)
            if len(head) + len(line) <= budget:
                return kept, head, line
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


def _length(encoded: dict[Part, list[int]]) -> int:
    return sum(map(len, encoded.values()))


def _from_line_start(text: str, cut: int) -> str:
    """The text from the first line start at or after `cut`; from `cut` itself if no line starts there any more."""
    if cut <= 0:
        return text
    start = text.find("\n", cut - 1) + 1
    return text[start:] if 0 < start < len(text) else text[cut:]
