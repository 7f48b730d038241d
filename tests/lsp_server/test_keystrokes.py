"""Keys steer a suggestion: typing along, deleting, accepting parts. Through the whole server, with a fake engine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsp_fakes import Client, FakeEngine

from engine.request import CompletionRequest
from lsp_server.documents import Edit, Position
from lsp_server.pace import Pace
from lsp_server.typed import Typed, advanced, may_become, spliced, typed_since

URI = "file:///w/a.py"
BEFORE = "def total(items):\n    "
ANSWER = "return sum(item.price for item in items)"
LINE = 1


def pieces_of(request: CompletionRequest) -> list[str | Exception]:
    """A model that writes ANSWER behind BEFORE, word by word, and nothing anywhere else."""
    whole = BEFORE + ANSWER
    rest = whole[len(request.prefix) :] if whole.startswith(request.prefix) else ""
    return list(rest.replace(" ", " \0").split("\0")) if rest else []


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "script", staticmethod(pieces_of))


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """The engine waits before each piece; `await step(n)` lets it write n more."""
    permits = asyncio.Semaphore(0)
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(permits.acquire))

    async def write(count: int) -> None:
        for _ in range(count):
            permits.release()
        for _ in range(30):
            await asyncio.sleep(0)

    return write


class Editor:
    """One document with a cursor, and requests at it."""

    def __init__(self, client: Client, before: str = BEFORE) -> None:
        self.client = client
        self.typed = ""
        self.id = 0
        client.open(URI, before)

    @property
    def engine(self) -> FakeEngine:
        return FakeEngine.made[0]

    @property
    def column(self) -> int:
        return 4 + len(self.typed)

    def edit(self, start: int, end: int, text: str, **change: Any) -> None:
        places = [{"line": LINE, "character": 4 + place} for place in (start, end)]
        self.client.notify(
            "textDocument/didChange",
            textDocument={"uri": URI, "version": 2},
            contentChanges=[{"range": {"start": places[0], "end": places[1]}, "text": text}],
        )

    def type(self, text: str) -> None:
        self.edit(len(self.typed), len(self.typed), text)
        self.typed += text

    def delete(self, count: int = 1) -> None:
        self.edit(len(self.typed) - count, len(self.typed), "")
        self.typed = self.typed[:-count]

    def ask(self, **context: Any) -> int:
        self.id += 1
        self.client.request(self.id, URI, LINE, self.column, **context)
        return self.id

    def cancel(self, id_: int) -> None:
        self.client.notify("$/cancelRequest", id=id_)

    async def items(self, id_: object) -> list[dict[str, Any]]:
        return (await self.client.reply(id_))["result"]["items"]

    async def text(self, id_: object) -> str:
        return "".join(item["insertText"] for item in await self.items(id_))

    async def asked(self) -> str:
        return await self.text(self.ask())


@pytest.fixture
def editor(client: Client) -> Editor:
    return Editor(client)


async def test_typing_along_keeps_the_stream(editor: Editor, step: Callable[[int], Any]) -> None:
    """The client cancels and asks anew with each key. Seen to fail without the grace: two requests to the engine."""
    first = editor.ask()
    await step(2)
    for key in "ret":
        editor.type(key)
        editor.cancel(first)
        await editor.client.settle()
        first = editor.ask(token=f"t{key}")
        await editor.client.settle()
    await step(99)
    assert await editor.text(first) == ANSWER[3:]
    assert len(editor.engine.requests) == 1


async def test_a_cancel_that_comes_before_the_key_begins_anew(editor: Editor, step: Callable[[int], Any]) -> None:
    """Stopped at once, as a cancel should. Seen to fail with a new prompt behind what it had written: on the real pair,
    `self` and then `self.x = x`."""
    first = editor.ask()
    await step(2)
    editor.cancel(first)
    await editor.client.reply(first)
    assert editor.engine.live == 0
    editor.type("re")
    second = editor.ask()
    await step(99)
    assert await editor.text(second) == ANSWER[2:]
    assert editor.engine.requests[-1].prefix == BEFORE + "re"


async def test_what_is_finished_needs_no_engine(editor: Editor) -> None:
    id_ = editor.ask()
    (item,) = await editor.items(id_)
    for key in ANSWER[:-1]:
        editor.type(key)
        (now,) = await editor.items(editor.ask())
        assert now["insertText"] == ANSWER[len(editor.typed) :]
        assert now["command"] == item["command"]  # one suggestion, shown bit by bit
    assert len(editor.engine.requests) == 1
    stats = (await editor.client.ask("s", "specter/stats"))["result"]
    assert stats["typedThrough"] == len(ANSWER) - 1


async def test_deleting_returns_to_what_was_there(editor: Editor, step: Callable[[int], Any]) -> None:
    first = editor.ask()
    await step(99)
    await editor.client.reply(first)
    editor.type("retx")
    assert await editor.asked() == ""
    editor.delete()
    assert await editor.asked() == ANSWER[3:]
    editor.delete(3)
    assert await editor.asked() == ANSWER
    assert [request.prefix for request in editor.engine.requests] == [BEFORE, BEFORE + "retx"]


async def test_a_word_or_a_line_leaves_the_rest_alive(editor: Editor, step: Callable[[int], Any]) -> None:
    first = editor.ask()
    await step(3)
    editor.type("return ")
    second = editor.ask()
    editor.type("sum(")
    third = editor.ask()
    await step(99)
    assert await editor.text(third) == ANSWER[len("return sum(") :]
    for id_ in (first, second):
        assert (await editor.client.reply(id_))["error"]["code"] == -32800
    assert len(editor.engine.requests) == 1


async def test_another_key_ends_it_at_once(editor: Editor, step: Callable[[int], Any]) -> None:
    editor.ask()
    await step(1)
    editor.type("y")
    await editor.client.settle()
    assert editor.engine.live == 0


async def test_nobody_left_to_read_ends_it(editor: Editor, step: Callable[[int], Any]) -> None:
    """Typed along and cancelled, but no request follows: the popup may have closed. Ends by itself."""
    first = editor.ask()
    await step(1)
    editor.type("r")
    editor.cancel(first)
    assert (await editor.client.reply(first))["error"]["code"] == -32800
    await asyncio.sleep(0.2)
    assert editor.engine.live == 0


@pytest.mark.parametrize("edits", [[("(", "(")], [("()", "(")], [("(", "("), (")", "")]], ids=["none", "one", "two"])
async def test_an_auto_closed_bracket(editor: Editor, edits: list[tuple[str, str]], step: Callable[[int], Any]) -> None:
    """The editor adds `)` behind the cursor, in one edit or in two; the suggestion then ends before it."""
    first = editor.ask()
    await step(2)
    editor.type("return sum")
    closed = False
    for inserted, before in edits:
        editor.edit(len(editor.typed), len(editor.typed), inserted)
        editor.typed += before
        closed |= inserted.endswith(")")
    second = editor.ask()
    await step(99)
    rest = ANSWER[len("return sum(") :]
    assert await editor.text(second) == (rest.removesuffix(")") if closed else rest)
    assert len(editor.engine.requests) == 1
    assert (await editor.client.reply(first))["error"]


@pytest.mark.parametrize("early", [True, False])
async def test_after_the_whole_the_next_is_prepared(
    client: Client, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """On the next line, since the statement is complete. Seen to fail without `used_up`; without `ahead`, when the new
    line ended what was prepared for it."""
    editor = Editor(client)
    assert await editor.asked() == ANSWER
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: ["x", " = 1"]))
    editor.type(ANSWER)
    if early:
        await client.settle()
    editor.type("\n    ")
    await client.settle()
    assert [request.prefix for request in editor.engine.requests] == [BEFORE, BEFORE + ANSWER + "\n    "]
    client.request("next", URI, LINE + 1, 4)
    assert await editor.text("next") == "x = 1"
    assert len(editor.engine.requests) == 2


async def test_inside_brackets_what_is_prepared_is_for_this_line(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: ["item", "s"]))
    client.open(URI, "def total(items):\n    print()")
    client.request(1, URI, 1, 10)
    await client.reply(1)
    client.change(URI, 1, 10, "items")
    await client.settle()
    prefixes = [request.prefix for request in FakeEngine.made[0].requests]
    assert prefixes == ["def total(items):\n    print(", "def total(items):\n    print(items"]


async def test_what_is_prepared_yields_to_a_key(editor: Editor, step: Callable[[int], Any]) -> None:
    await step(99)
    assert await editor.asked() == ANSWER
    editor.type(ANSWER)
    await editor.client.settle()
    editor.type("#")
    await editor.client.settle()
    assert editor.engine.live == 0


async def test_what_is_prepared_gives_way_to_another(
    editor: Editor, monkeypatch: pytest.MonkeyPatch, step: Callable[[int], Any]
) -> None:
    """Somebody else waits for the engine."""
    await step(99)
    assert await editor.asked() == ANSWER
    pieces = {"    ": ["x", " =", " 1"], "   x": [" = 1"]}
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: pieces[request.prefix[-4:]]))
    usage = editor.engine.usage
    monkeypatch.setattr(editor.engine, "usage", lambda: usage() | {"waitingRequests": 1})
    editor.type(ANSWER)
    await editor.client.settle()
    assert editor.engine.live == 0
    editor.type("\n    ")
    editor.client.request("next", URI, LINE + 1, 4)
    assert await editor.text("next") == "x = 1"
    assert len(editor.engine.requests) == 3


async def test_alternatives_are_distinct(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by a key: up to three texts, the first as always, the others sampled."""
    texts = iter(["return a", "return b", "return a", "return c", "return d"])
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: [next(texts)]))
    items = await editor.items(editor.ask(triggerKind=1))
    assert [item["insertText"] for item in items] == ["return a", "return b", "return c"]
    assert len({item["command"]["arguments"][0] for item in items}) == 3
    modes = [request.sampling.mode for request in editor.engine.requests]
    assert modes == ["greedy", "sampled", "sampled", "sampled"]
    assert len({request.sampling.seed for request in editor.engine.requests}) == 4
    editor.type("return c"[:-1])
    assert await editor.asked() == "a"  # all three go on here: the first counts
    editor.type("c")
    editor.delete()
    editor.delete(7)
    assert await editor.asked() == "return a"


async def test_typing_along_an_alternative(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(["first()", "second()", "third()"])
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: [next(texts)]))
    await editor.items(editor.ask(triggerKind=1))
    editor.type("sec")
    assert await editor.asked() == "ond()"
    assert len(editor.engine.requests) == 3


async def test_other_settings_forget_what_was_written(editor: Editor) -> None:
    assert await editor.asked() == ANSWER
    editor.client.notify("workspace/didChangeConfiguration", settings={"specter": {"maxTokens": 3}})
    await editor.client.settle()
    assert await editor.asked() == ANSWER
    assert len(editor.engine.requests) == 2


async def test_another_document_is_another_matter(editor: Editor) -> None:
    assert await editor.asked() == ANSWER
    editor.client.open("file:///w/b.py", BEFORE)
    editor.client.request("b", "file:///w/b.py", LINE, 4)
    await editor.client.reply("b")
    assert len(editor.engine.requests) == 2


async def test_opened_anew_nothing_is_left(editor: Editor) -> None:
    assert await editor.asked() == ANSWER
    editor.client.open(URI, BEFORE)
    assert await editor.asked() == ANSWER
    assert len(editor.engine.requests) == 2


_KEYS = st.sampled_from(["along", "along", "along", "word", "other", "delete", "ask", "ask", "cancel", "write"])


@settings(max_examples=150, deadline=None)
@given(keys=st.lists(_KEYS, min_size=3, max_size=40))
def test_any_typing_gets_the_answer_of_a_fresh_request(keys: list[str]) -> None:
    """Whatever was typed, deleted and cancelled before, the text is the one a new server would offer here; each request
    has one reply, and never do two generations run. Seen to fail: `rest` without the check of what was typed; a stopped
    generation that serves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeEngine, "made", [])
        patch.setattr(FakeEngine, "script", staticmethod(pieces_of))
        asyncio.run(_session(keys, patch))


async def _session(keys: list[str], patch: pytest.MonkeyPatch) -> None:
    permits = asyncio.Semaphore(0)
    patch.setattr(FakeEngine, "pause", staticmethod(permits.acquire))
    client = await Client().ready({"debounceMs": 0})
    editor = Editor(client)
    expected: dict[int, str] = {}
    for key in keys:
        if key == "ask":
            expected[editor.ask()] = due(editor.typed)
        elif key == "write":
            permits.release()
            await client.settle()
        else:
            press(editor, key)
        await asyncio.sleep(0)
    for _ in range(200):
        permits.release()
    last = editor.ask()
    expected[last] = due(editor.typed)
    for id_ in expected:
        reply = await client.reply(id_)
        assert len(client.replies(id_)) == 1
        if "error" in reply:
            assert reply["error"]["code"] == -32800
        else:
            texts = [item["insertText"] for item in reply["result"]["items"]]
            assert texts == [expected[id_]] or (not texts and (id_ != last or not expected[id_]))
    assert editor.engine.most_live <= 1
    client.connection.lost()
    await client.connection.close()


def due(typed: str) -> str:
    return ANSWER[len(typed) :] if ANSWER.startswith(typed) else ""


def press(editor: Editor, key: str) -> None:
    rest = due(editor.typed)
    word = re.match(r"\w+\W*|\W+", rest)
    if key == "along" and rest:
        editor.type(rest[0])
    elif key == "word" and word:
        editor.type(word[0])
    elif key == "other":
        editor.type("#")
    elif key == "delete" and editor.typed:
        editor.delete()
    elif key == "cancel" and editor.id:
        editor.cancel(editor.id)


# The parts


def request(prefix: str, suffix: str = "") -> CompletionRequest:
    return CompletionRequest(prefix=prefix, suffix=suffix)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (("a = ", "\n"), ("a = ", "\n"), Typed("")),
        (("a = ", "\n"), ("a = f(", ")\n"), Typed("f(", ")")),
        (("a = ", "\n"), ("a = {'", "'}\n"), Typed("{'", "'}")),
        (("a = ", "\n"), ("a = f(", " x\n"), None),
        (("a = ", "\n"), ("a =", " \n"), None),
        (("a = ", "\n"), ("a ", "= \n"), None),
        (("a = ", "\n"), ("b = ", "\n"), None),
        (("", ""), ("x", ""), Typed("x")),
    ],
)
def test_typed_since(before: tuple[str, str], now: tuple[str, str], expected: Typed | None) -> None:
    assert typed_since(request(*before), request(*now)) == expected


@given(
    typed=st.text("ab\n", max_size=12),
    spans=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.text("cd\n", max_size=4)), max_size=5),
    start=st.builds(Position, st.integers(0, 3), st.integers(0, 5)),
)
def test_spliced_is_string_slicing(typed: str, spans: list[tuple[int, int, str]], start: Position) -> None:
    """Against slices of the text. Seen to fail: the first line's column added on every line."""
    text, edits = typed, []
    for one, other, new in spans:
        first, last = sorted((min(one, len(text)), min(other, len(text))))
        edits.append(Edit(advanced(start, text[:first]), advanced(start, text[:last]), new))
        text = text[:first] + new + text[last:]
    assert spliced(typed, start, edits) == text
    outside = Edit(Position(start.line + 20, 0), Position(start.line + 20, 0), "x")
    assert spliced(typed, start, [*edits, outside]) is None


@pytest.mark.parametrize(
    ("typed", "text", "growing", "expected"),
    [
        ("ret", "return", False, True),
        ("return x", "return", True, True),
        ("return x", "return", False, False),
        ("print()", "print(x)", False, True),
        ("x", "return", True, False),
        ("", "", False, True),
    ],
)
def test_may_become(typed: str, text: str, growing: bool, expected: bool) -> None:
    assert may_become(typed, text, growing) is expected


@pytest.mark.parametrize(
    ("gap_s", "answer_s", "expected"),
    [(0.1, 0.05, 0.0), (0.1, 0.4, 0.12), (0.3, 0.4, 0.15), (2.0, 5.0, 0.0), (0.1, None, 0.0)],
    ids=["answers are faster", "keys are faster", "never long", "thinking", "unknown"],
)
def test_the_pace_of_typing(gap_s: float, answer_s: float | None, expected: float) -> None:
    pace = Pace()
    for _ in range(20):
        if answer_s is not None:
            pace.answered(answer_s)
    delays = [pace.delay(gap_s * number) for number in range(20)]
    assert delays[0] == 0.0
    assert delays[-1] == pytest.approx(expected)
