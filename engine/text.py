"""From token ids to streamed text: whole characters only, stop strings exact to the token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # how decoders show bytes that do not make a character yet


class StopFinder:
    """Takes text piece by piece and gives out what is certain: no stop string, and nothing that may begin one."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(stop)
        self._pending = ""  # text that a stop string may still swallow
        self.found = ""  # the stop string that was met; nothing follows

    def push(self, text: str, final: bool = False) -> str:
        """Adds text and returns what became certain of all; `final`: no more will come."""
        if self.found:
            return ""
        self._pending += text
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := self._pending.find(stop)) >= 0]
        if found:
            # The one that is complete first, as if the text came by characters: token borders must not matter.
            _, at, self.found = min(found)
            return self._pending[:at]
        held = 0 if final else self._possible_stop()
        certain = self._pending[: len(self._pending) - held]
        self._pending = self._pending[len(certain) :]
        return certain

    def _possible_stop(self) -> int:
        """Length of the longest end of the pending text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(self._pending)), 0, -1):
            if any(stop.startswith(self._pending[-length:]) for stop in self._stop):
                return length
        return 0


class TextStream:
    """Takes one token after another and gives out the text that is certain by now.

    Held back: bytes that do not make a whole character yet, and text that may turn out to begin a stop string. The
    pieces concatenate to the final text. `context` are the ids before the first token; they are decoded with it
    because some tokenizers write a token differently at the start of a text.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = (), context: Sequence[int] = ()
    ) -> None:
        self._decode = decode
        self._stop = StopFinder(stop)
        self._window = list(context)  # ids that the next token is decoded together with
        self._read = len(self._window)  # of these, how many are given out

    @property
    def stopped(self) -> bool:
        """A stop string was met; nothing follows."""
        return bool(self._stop.found)

    def push(self, token: int) -> str:
        """Adds a token and returns the text that became certain, perhaps none."""
        self._window.append(token)
        return self._stop.push(self._new_characters(final=False))

    def finish(self) -> str:
        """The text that was held back; half a character at the very end is dropped."""
        return "" if self.stopped else self._stop.push(self._new_characters(final=True), final=True)

    def _new_characters(self, final: bool) -> str:
        before = self._decode(self._window[: self._read])
        now = self._decode(self._window)
        if now.endswith(_HALF_CHARACTER):
            if not final:
                return ""
            now = now.rstrip(_HALF_CHARACTER)
        # What was just given out stays as the context of the next token; more would make a long text quadratic.
        self._window = self._window[self._read :] if self._read < len(self._window) else self._window
        self._read = len(self._window)
        return now[len(before) :]
