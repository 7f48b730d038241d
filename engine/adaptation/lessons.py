"""What the target thought while it verified, kept for the draft model to learn from: in memory only, and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.drafters import Context
from engine.speculation import ROOT, Draft

_MOST = 256  # lessons: 4 MB
_BEFORE = 96  # tokens before the first law; more would make a step of learning longer than a cycle
_LAWS = 16  # of a lesson
_LIKELIEST = 32  # tokens of a law


@dataclass(slots=True)
class Lesson:
    """Tokens, and after each of the last of them the target's law, as its likeliest tokens and their probabilities."""

    tokens: list[int]
    ids: list[Tensor] = field(default_factory=list)  # a law each: [likeliest] int64
    probs: list[Tensor] = field(default_factory=list)  # [likeliest] float16

    def laws(self) -> tuple[Tensor, Tensor]:
        """(ids [laws, likeliest], probs [laws, likeliest] float32)"""
        return torch.stack(self.ids), torch.stack(self.probs).float()


class Lessons:
    """Watches decoding. The latest lessons, in the order they came; `seen` counts all there ever were."""

    def __init__(self) -> None:
        self._lessons: deque[Lesson] = deque(maxlen=_MOST)
        self._length = 0  # of the text at the end of the last lesson
        self.seen = 0

    def all(self) -> list[Lesson]:
        return list(self._lessons)

    def saw(self, context: Context, draft: Draft, logits: Tensor, path: Sequence[int]) -> None:
        """A law for the next token, and one behind each guess that came true."""
        probs, ids = logits[[node + 1 for node in (ROOT, *path)]].float().softmax(dim=-1).topk(_LIKELIEST)
        if not self._goes_on(context):
            self._lessons.append(Lesson(list(context.tokens[-_BEFORE:])))
            self.seen += 1
        else:
            self._lessons[-1].tokens += context.tokens[self._length :]
        lesson = self._lessons[-1]
        lesson.tokens += (draft.tokens[node] for node in path)
        lesson.ids += ids.cpu().clone()
        lesson.probs += probs.half().cpu().clone()
        self._length = len(context.tokens) + len(path)

    def _goes_on(self, context: Context) -> bool:
        """Whether this cycle is the next of the last lesson's completion, with a token more behind its last law."""
        if not self._lessons or not context.position or len(self._lessons[-1].ids) >= _LAWS:
            return False
        last = self._lessons[-1].tokens
        return list(context.tokens[max(self._length - len(last), 0) : self._length]) == last
