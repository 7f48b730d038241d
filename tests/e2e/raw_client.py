"""Bytes in, frames out: a JSON-RPC client that sends what no library would, and waits for nothing longer than told."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .server import COMMAND, ENVIRONMENT, OPTIONS, READY_S, REPLY_S

Frame = dict[str, Any]


class RawClient:
    """A server process and every frame it has sent. Requests of the server are answered by themselves."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0
        )
        self.frames: list[Frame] = []
        self.stderr = bytearray()
        self._ids = itertools.count(1)
        self._news = threading.Condition()
        self._ended = False  # nothing more will come
        self._sending = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # --- sending ----------------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with self._sending:
            self.process.stdin.write(data)

    def send(self, message: Any) -> None:
        self.send_bytes(frame(json.dumps(message).encode()))

    def request(self, method: str, params: Any = None, id: Any = None) -> Any:  # noqa: A002 - the protocol's word
        """Send a request; returns its id."""
        id = f"raw-{next(self._ids)}" if id is None else id  # noqa: A001
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    # --- receiving --------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[list[Frame]], Any], what: str, timeout: float = REPLY_S) -> Any:
        """The first true value of `condition(frames)`."""
        with self._news:
            self._news.wait_for(lambda: condition(self.frames) or self._ended, timeout)
            found = condition(self.frames)
        assert found, (
            f"no {what} within {timeout} s; exit code: {self.process.poll()}; stderr: {bytes(self.stderr[-500:])!r}"
        )
        return found

    def reply(self, id: Any, timeout: float = REPLY_S) -> Frame:  # noqa: A002
        return self.wait(
            lambda frames: next((f for f in frames if is_reply(f) and same(f["id"], id)), None),
            f"reply to {id!r}",
            timeout,
        )

    def replies(self, id: Any) -> list[Frame]:  # noqa: A002
        return [frame for frame in list(self.frames) if is_reply(frame) and same(frame["id"], id)]

    def replies_by_id(self) -> dict[Any, list[Frame]]:
        """All replies; those without an id, to what could not be understood, under None."""
        replies: dict[Any, list[Frame]] = {}
        for message in list(self.frames):
            if is_reply(message):
                replies.setdefault(message["id"], []).append(message)
        return replies

    def ask(self, method: str, params: Any = None, timeout: float = REPLY_S) -> Any:
        """The result of a request that must succeed."""
        reply = self.reply(self.request(method, params), timeout)
        assert "result" in reply, reply
        return reply["result"]

    def fence(self) -> None:
        """Return when the server has handled everything sent so far: it takes messages in their order."""
        self.ask("specter/stats", {})

    def notifications(self, method: str) -> list[Any]:
        return [frame["params"] for frame in list(self.frames) if frame.get("method") == method and "id" not in frame]

    # --- the usual conversation -------------------------------------------------------------------------------------

    def initialize(self, **changes: Any) -> Frame:
        """The reply to `initialize`; keywords replace its params."""
        params = {"processId": None, "rootUri": None, "capabilities": CAPABILITIES, "initializationOptions": OPTIONS}
        return self.reply(self.request("initialize", params | changes))

    def start(self, **changes: Any) -> RawClient:
        """Initialize and wait until completions are possible."""
        self.initialize(**changes)
        self.notify("initialized", {})
        self.wait_ready()
        return self

    def wait_ready(self, timeout: float = READY_S) -> None:
        self.wait(lambda frames: any(is_status(frame, "ready") for frame in frames), "status ready", timeout)

    def open(self, uri: str, text: str, language: str = "python") -> None:
        self.notify(
            "textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": language, "version": 1, "text": text}}
        )

    def stop(self) -> int:
        """Close stdin and wait for the end; returns the exit code."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        return self.wait_exit(10.0)

    def wait_exit(self, timeout: float) -> int:
        """The exit code. A server that does not end is killed, and the test fails."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server still runs after {timeout} s") from None
        for thread in self._threads:
            thread.join(5.0)
        return code

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    # --- threads ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            self._receive()
        finally:
            with self._news:
                self._ended = True
                self._news.notify_all()

    def _receive(self) -> None:
        for body in self._bodies():
            message = json.loads(body)
            with self._news:
                self.frames.append(message)
                self._news.notify_all()
            if "method" in message and "id" in message:
                answer = [OPTIONS] if message["method"] == "workspace/configuration" else None
                with contextlib.suppress(OSError, ValueError):
                    self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    def _bodies(self) -> Iterator[bytes]:
        """Strict: the header is `Content-Length: N\\r\\n\\r\\n` and nothing else may be on stdout."""
        assert self.process.stdout is not None
        data = bytearray()
        while chunk := self.process.stdout.read(1 << 16):
            data += chunk
            while (end := data.find(b"\r\n\r\n")) >= 0:
                name, _, length = bytes(data[:end]).partition(b": ")
                assert name == b"Content-Length", f"not a header: {bytes(data[:80])!r}"
                if len(data) < end + 4 + int(length):
                    break
                yield bytes(data[end + 4 : end + 4 + int(length)])
                del data[: end + 4 + int(length)]

    def _log(self) -> None:
        assert self.process.stderr is not None
        while chunk := self.process.stderr.read(1 << 16):
            self.stderr += chunk


CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-16"]},
    "textDocument": {"inlineCompletion": {}},
    "window": {"workDoneProgress": True},
}


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def is_reply(message: Frame) -> bool:
    return "method" not in message


def is_status(message: Frame, state: str) -> bool:
    return message.get("method") == "specter/status" and message["params"]["state"] == state


def same(one: Any, other: Any) -> bool:
    """Equal as JSON ids: 1 is neither "1" nor true."""
    return type(one) is type(other) and one == other


def completion_params(uri: str, line: int = 0, character: int = 0, **more: Any) -> Frame:
    return {
        "textDocument": {"uri": uri},
        "position": {"line": line, "character": character},
        "context": {"triggerKind": 2},
        **more,
    }
