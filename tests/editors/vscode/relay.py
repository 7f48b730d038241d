"""Stands between the editor and the real server: passes every byte on, notes every message, puts a test's questions.

    relay.py FOLDER COMMAND [ARGUMENT…]

FOLDER/messages.jsonl gets one line a message: when (seconds since the epoch), from whom, and what of it a test may
look at; FOLDER/pid the server's process id. A line sent to the socket FOLDER/ask, the name of a request, is put to the
server as the editor would, and its result comes back as one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


class Relay:
    def __init__(self, folder: Path, command: list[str]) -> None:
        self.log = (folder / "messages.jsonl").open("a", encoding="utf-8")
        self.lock = threading.Lock()
        self.asked: dict[str, queue.Queue[Any]] = {}
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        (folder / "pid").write_text(str(self.server.pid))
        address = folder / "ask"
        address.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(address))
        self.socket.listen()

    def run(self) -> int:
        threading.Thread(target=self._from_editor, daemon=True).start()
        threading.Thread(target=self._answer_tests, daemon=True).start()
        assert self.server.stdout is not None
        for body in frames(self.server.stdout):
            now, message = time.time(), json.loads(body)
            answer = self.asked.pop(str(message.get("id")), None) if "method" not in message else None
            if answer is not None:
                answer.put(message.get("result"))
                continue
            write(sys.stdout.buffer, body)
            self._note(now, "server", message)
        return self.server.wait()

    def _from_editor(self) -> None:
        for body in frames(sys.stdin.buffer):
            now = time.time()
            self._to_server(body)
            self._note(now, "editor", json.loads(body))
        with contextlib.suppress(OSError):
            assert self.server.stdin is not None
            self.server.stdin.close()

    def _to_server(self, body: bytes) -> None:
        assert self.server.stdin is not None
        with self.lock, contextlib.suppress(OSError):
            write(self.server.stdin, body)

    def _answer_tests(self) -> None:
        for number in range(1 << 30):
            connection, _ = self.socket.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as channel:
                id_ = f"test-{number}"
                answer = self.asked[id_] = queue.Queue()
                request = {"jsonrpc": "2.0", "id": id_, "method": channel.readline().strip(), "params": {}}
                self._to_server(json.dumps(request).encode())
                with contextlib.suppress(OSError, queue.Empty):
                    channel.write(json.dumps(answer.get(timeout=10)) + "\n")

    def _note(self, now: float, sender: str, message: dict[str, Any]) -> None:
        with self.lock:
            self.log.write(json.dumps({"time": now, "from": sender, **noted(message)}) + "\n")
            self.log.flush()


def noted(message: dict[str, Any]) -> dict[str, Any]:
    """What a test looks at. Document texts are left out; suggestions are kept."""
    note = {key: message[key] for key in ("id", "method", "error") if key in message}
    params, result = message.get("params"), message.get("result")
    if isinstance(params, dict):
        kept = (
            "token",
            "value",
            "position",
            "context",
            "command",
            "arguments",
            "item",
            "acceptedLength",
            "id",
            "state",
        )
        note["params"] = {key: params[key] for key in kept if key in params}
    if isinstance(result, list):
        note["result"] = result  # the editor's settings
    if isinstance(result, dict):
        note["result"] = {key: result[key] for key in ("items", "serverInfo") if key in result}
    return note


def frames(stream: BinaryIO) -> Iterator[bytes]:
    while True:
        length = None
        while line := stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if length is None:
            return
        yield stream.read(length)


def write(stream: BinaryIO, body: bytes) -> None:
    stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    stream.flush()


if __name__ == "__main__":
    code = Relay(Path(sys.argv[1]), sys.argv[2:]).run()
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)
