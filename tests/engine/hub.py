"""A model hub on 127.0.0.1: the few answers that huggingface_hub needs to list and download a repository."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves each folder of `repositories` under its name; `pause_s` after every 64 kB of a file."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.pause_s = 0.0
        self.refuses = 0  # an HTTP status for every question, or 0
        self.sent = 0  # bytes of files

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._file(body=False)

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            self._info()
        else:
            self._file(body=True)

    def _info(self) -> None:
        name = "/".join(self.path.removeprefix("/api/models/").partition("?")[0].split("/")[:2])
        folder = self.server.repositories.get(name)
        if self.server.refuses or folder is None:
            self._refuse(self.server.refuses or 404)
            return
        siblings = [{"rfilename": path.name, "size": path.stat().st_size} for path in sorted(folder.iterdir())]
        body = json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, body: bool) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")  # owner, repository, "resolve", revision, file
        file = self.server.repositories.get("/".join(parts[:2]), Path("nowhere")) / "/".join(parts[4:])
        if self.server.refuses or not file.is_file():
            self._refuse(self.server.refuses or 404)
            return
        content = file.read_bytes()
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        for at in range(start, len(content) if body else start, 65536):
            try:
                self.wfile.write(content[at : at + 65536])
            except OSError:  # the client has gone
                return
            self.server.sent += len(content[at : at + 65536])
            time.sleep(self.server.pause_s)

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        code = {401: "GatedRepo", 403: "GatedRepo", 404: "RepoNotFound"}.get(status, "")
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(repositories: dict[str, Path]) -> Iterator[Hub]:
    hub = Hub(repositories)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
