"""One of many editors on one server: types its session over TCP, and notices every reply that is not its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .load_session import Key, Session
from .raw_client import CAPABILITIES, Frame, completion_params, frame, is_reply, is_status
from .server import OPTIONS, READY_S

COMPLETE = "textDocument/inlineCompletion"
STANDS_S = 60.0  # for an answer that somebody waits for


@dataclass(slots=True)
class Asked:
    """A request and what came of it; times are of time.perf_counter()."""

    line: int
    character: int
    stands: bool  # nobody cancelled it
    sent: float
    reply: asyncio.Future[Frame]
    first: float | None = None  # its first text
    replied: float | None = None


@dataclass(slots=True)
class Client:
    """A connection, its document, and every request with its replies. `words` are those of all clients."""

    number: int
    session: Session
    words: Collection[str]
    wrong: list[str] = field(default_factory=list)  # one line for each thing that must not be
    asked: dict[str, Asked] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=Counter)
    marked: int = 0  # replies with this client's own word
    _line: int = 0
    _character: int = 0
    _version: int = 1
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _questions: dict[str, asyncio.Future[Frame]] = field(default_factory=dict)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _writer: asyncio.StreamWriter | None = None
    _reading: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Connects, opens its document, and returns when completions are possible."""
        reader, self._writer = await asyncio.open_connection(host, port)
        self._reading = asyncio.create_task(self._read(reader))
        params = {"processId": None, "rootUri": None, "capabilities": CAPABILITIES}
        await self.ask("initialize", params | {"initializationOptions": OPTIONS})
        self._notify("initialized", {})
        async with asyncio.timeout(READY_S):
            await self._ready.wait()
        document = {"uri": self.session.uri, "languageId": "python", "version": 1, "text": self.session.text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        self._line = self.session.text.count("\n")
        await self.ask("specter/stats", {})

    async def type(self, until: float) -> None:
        """The session, until that time (time.perf_counter()); the last request stands."""
        previous: str | None = None
        for key in self.session.keys:
            last = time.perf_counter() + key.gap_s >= until
            previous = self._press(key, previous, last)
            if key.stands or last:
                await self._stand(previous)
            if last:
                return
            await asyncio.sleep(key.gap_s)

    async def ask(self, method: str, params: Any) -> Any:
        """The result of a question that is no completion."""
        id_ = f"{self.session.word}-ask-{next(self._ids)}"
        self._questions[id_] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
        async with asyncio.timeout(READY_S):
            return (await self._questions[id_])["result"]

    async def stop(self) -> None:
        if self._writer is not None:
            self._notify("exit", None)
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()

    def waits(self) -> list[float]:
        """Seconds until the requests that were left standing had their replies."""
        standing = [asked for asked in self.asked.values() if asked.stands]
        return [asked.replied - asked.sent for asked in standing if asked.replied is not None]

    def first_texts(self) -> list[float]:
        """Seconds to the first text, of all requests that came to one."""
        return [asked.first - asked.sent for asked in self.asked.values() if asked.first is not None]

    def faults(self) -> list[str]:
        """What was wrong, as lines; to be asked when all replies should have come."""
        odd = [f"{id_}: {self.replies[id_]} replies" for id_ in self.asked if self.replies[id_] != 1]
        return self.wrong + odd

    # --- sending ----------------------------------------------------------------------------------------------------

    def _press(self, key: Key, previous: str | None, last: bool) -> str:
        """The key's change, the cancel of the request before, and a request; returns its id."""
        self._version += 1
        here = {"line": self._line, "character": self._character}
        change = {"range": {"start": here, "end": here}, "text": key.text}
        document = {"uri": self.session.uri, "version": self._version}
        self._notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        newline = key.text == "\n"
        self._line, self._character = (self._line + 1, 0) if newline else (self._line, self._character + 1)
        if previous is not None:
            self._notify("$/cancelRequest", {"id": previous})
        id_ = f"{self.session.word}-{next(self._ids)}"
        reply: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        stands = key.stands or last
        self.asked[id_] = Asked(self._line, self._character, stands, time.perf_counter(), reply)
        params = completion_params(self.session.uri, self._line, self._character, partialResultToken=f"t-{id_}")
        self._send({"jsonrpc": "2.0", "id": id_, "method": COMPLETE, "params": params})
        return id_

    async def _stand(self, id_: str) -> None:
        try:
            async with asyncio.timeout(STANDS_S):
                await asyncio.shield(self.asked[id_].reply)
        except TimeoutError:
            self.wrong.append(f"{id_}: no reply within {STANDS_S:.0f} s")

    def _notify(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: Frame) -> None:
        assert self._writer is not None
        self._writer.write(frame(json.dumps(message).encode()))

    # --- receiving --------------------------------------------------------------------------------------------------

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.receive(json.loads(await reader.readexactly(int(head.split(b":")[1]))))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.wrong.append(f"client {self.number}: the server closed the connection")
        except Exception as error:  # what it cannot read is the server's fault, and a failure
            self.wrong.append(f"client {self.number}: {error!r}")

    def receive(self, message: Frame) -> None:
        """One message of the server."""
        if is_reply(message):
            self._take_reply(message)
        elif "id" in message:
            answer = [OPTIONS] if message["method"] == "workspace/configuration" else None
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        elif is_status(message, "ready"):
            self._ready.set()
        elif message["method"] == "$/progress" and "items" in (message["params"]["value"] or {}):
            self._take_text(message["params"])

    def _take_reply(self, message: Frame) -> None:
        id_ = message["id"]
        if id_ in self._questions:
            self._questions.pop(id_).set_result(message)
        elif id_ not in self.asked:
            self.wrong.append(f"client {self.number}: a reply to {id_!r}, which it never sent")
        else:
            self.replies[id_] += 1
            asked = self.asked[id_]
            asked.replied = asked.replied or time.perf_counter()
            code = message.get("error", {}).get("code")
            if code is None:
                self._check(id_, message["result"]["items"], count=True)
            elif code != -32800 or asked.stands:
                self.wrong.append(f"{id_}: error {code}")
            if not asked.reply.done():
                asked.reply.set_result(message)

    def _take_text(self, params: Frame) -> None:
        id_ = str(params["token"]).removeprefix("t-")
        asked = self.asked.get(id_)
        if asked is None:
            self.wrong.append(f"client {self.number}: a text for {id_!r}, which it never sent")
        elif self.replies[id_]:
            self.wrong.append(f"{id_}: a text after its reply")
        else:
            asked.first = asked.first or time.perf_counter()
            self._check(id_, params["value"]["items"])

    def _check(self, id_: str, items: list[Any], *, count: bool = False) -> None:
        """That a suggestion is for this client's cursor, and holds no word of another."""
        asked = self.asked[id_]
        for item in items:
            text, start = item["insertText"], item["range"]["start"]
            if (start["line"], start["character"]) > (asked.line, asked.character) or start["line"] != asked.line:
                self.wrong.append(f"{id_}: at {start}, asked at {asked.line}:{asked.character}")
            foreign = [word for word in self.words if word != self.session.word and word in text]
            if foreign:
                self.wrong.append(f"{id_}: the text of another client, {foreign}")
            self.marked += count and self.session.word in text
