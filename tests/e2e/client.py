"""An editor without a screen, on pytest-lsp: opens files, types, deletes, asks, cancels, accepts.

Its replies are checked against the LSP's schema by lsprotocol; what the schema does not say, the tests do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage, default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features
from pytest_lsp.protocol import LanguageClientProtocol

from .buffer import Buffer
from .server import COMMAND, ENVIRONMENT, OPTIONS, READY_S, REPLY_S

INLINE_COMPLETION = types.TEXT_DOCUMENT_INLINE_COMPLETION


class _Protocol(LanguageClientProtocol):
    """Params of inline completions are JSON: lsprotocol has no field for the token of partial results."""

    def get_message_type(self, method: str) -> Any:
        return None if method == INLINE_COMPLETION else super().get_message_type(method)


class EditorClient(LanguageClient):
    """One editor and the server it started or connected to."""

    def __init__(self, encodings: tuple[str, ...] = ("utf-16",), options: dict[str, Any] | None = None) -> None:
        super().__init__(protocol_cls=_Protocol, converter_factory=_converter)
        self.encodings = encodings
        self.options = OPTIONS | (options or {})
        self.encoding = ""  # what was agreed on
        self.statuses: list[dict[str, Any]] = []
        self.work: dict[Any, list[dict[str, Any]]] = {}  # work-done progress by token
        self._partials: dict[Any, list[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        _listen(self)

    async def start(self, *, folder: str | None = None) -> EditorClient:
        """Start a server on stdio and initialize."""
        await self.start_io(*COMMAND, env=ENVIRONMENT)
        return await self.greet(folder=folder)

    async def connect(self, host: str, port: int) -> EditorClient:
        await self.start_tcp(host, port)
        return await self.greet()

    async def greet(self, *, folder: str | None = None) -> EditorClient:
        result = await self.initialize_session(_initialize_params(self.encodings, self.options, folder))
        assert result.capabilities.inline_completion_provider is not None
        self.encoding = str(
            getattr(result.capabilities.position_encoding, "value", result.capabilities.position_encoding)
        )
        return self

    async def until(self, condition: Callable[[], Any], what: str, within_s: float = REPLY_S) -> Any:
        """The first true value of the condition."""
        try:
            async with asyncio.timeout(within_s):
                while not (value := condition()):
                    assert self._server is None or self._server.returncode is None, (
                        f"the server has ended with {self._server.returncode}, no {what}"
                    )
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"no {what} within {within_s} s") from None
        return value

    async def ready(self) -> EditorClient:
        await self.until(lambda: any(status["state"] == "ready" for status in self.statuses), "status ready", READY_S)
        return self

    def open(self, uri: str, text: str, language: str = "python") -> OpenFile:
        item = types.TextDocumentItem(uri, language, 1, text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return OpenFile(self, uri, Buffer(text, self.encoding), cursor=len(text))

    async def stats(self) -> dict[str, Any]:
        return await self._ask("specter/stats", {})

    async def context(self, uri: str, position: dict[str, int]) -> dict[str, Any]:
        return await self._ask("specter/context", {"textDocument": {"uri": uri}, "position": position})

    async def execute(self, command: dict[str, Any]) -> Any:
        """Run an item's command as editors do after they inserted its text."""
        params = types.ExecuteCommandParams(command["command"], arguments=command.get("arguments"))
        return await asyncio.wait_for(self.workspace_execute_command_async(params), REPLY_S)

    def shown(self, item: dict[str, Any]) -> None:
        self.protocol.notify("textDocument/didShowCompletion", {"item": item})

    def partially_accepted(self, item: dict[str, Any], length: int) -> None:
        """`length` in UTF-16 units from the beginning of the item's text."""
        self.protocol.notify("textDocument/didPartiallyAcceptCompletion", {"item": item, "acceptedLength": length})

    def ask_completion(self, uri: str, position: dict[str, int], *, stream: bool = False, **context: Any) -> Asked:
        """Send the request and do not wait."""
        id_ = next(self._ids)
        params: dict[str, Any] = {
            "textDocument": {"uri": uri},
            "position": position,
            "context": {"triggerKind": 2, **context},
        }
        if stream:
            params["partialResultToken"] = f"stream-{id_}"
        partials = self._partials.setdefault(f"stream-{id_}", [])
        future = asyncio.ensure_future(self.protocol.send_request_async(INLINE_COMPLETION, params, id_))
        return Asked(self, id_, future, partials)

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        return await asyncio.wait_for(self.protocol.send_request_async(method, params), REPLY_S)

    async def end(self) -> None:
        """Shut the server down and wait until it is gone."""
        await asyncio.wait_for(self.shutdown_session(), REPLY_S)
        await self.stop()


@dataclass(slots=True)
class Asked:
    """A completion on its way. `partials` are the values streamed so far."""

    client: EditorClient
    id: int
    future: asyncio.Future[Any]
    partials: list[dict[str, Any]]

    def cancel(self) -> None:
        """The server's reply still comes, and is an error. (Cancelling the future would make it one too many.)"""
        self.client.cancel_request(types.CancelParams(self.id))

    async def items(self) -> list[dict[str, Any]]:
        """The items of the reply, as JSON."""
        result = await asyncio.wait_for(asyncio.shield(self.future), REPLY_S)
        assert isinstance(result, types.InlineCompletionList), f"a list with items, never null: {result!r}"
        items = self.client.protocol._converter.unstructure(result)["items"]
        for item in items:
            assert isinstance(item["insertText"], str), "plain text, never a snippet"
            assert item["range"]["start"]["line"] == item["range"]["end"]["line"]
            assert item["command"]["command"] == "specter.accepted"
            assert len(item["command"]["arguments"]) == 1
        return items

    async def item(self) -> dict[str, Any]:
        """The only item of the reply."""
        (item,) = await self.items()
        return item

    async def error(self) -> int:
        """The code of the error that the reply must be."""
        with pytest.raises(JsonRpcException) as raised:
            await asyncio.wait_for(asyncio.shield(self.future), REPLY_S)
        assert raised.value.code is not None
        return raised.value.code


@dataclass(slots=True)
class OpenFile:
    """A document that is open, with the cursor at an offset."""

    client: EditorClient
    uri: str
    buffer: Buffer
    cursor: int
    version: int = field(default=1)

    @property
    def position(self) -> dict[str, int]:
        return self.buffer.position(self.cursor)

    def move_after(self, text: str) -> OpenFile:
        """The cursor goes behind the first occurrence of a text."""
        self.cursor = self.buffer.text.index(text) + len(text)
        return self

    def type(self, text: str) -> None:
        self._change(self.buffer.replace(self.cursor, self.cursor, text))
        self.cursor += len(text)

    def delete(self, count: int) -> None:
        """Characters before the cursor; a line end of two characters is one key."""
        start = self.cursor - count
        start -= self.buffer.splits_line_end(start)
        self._change(self.buffer.replace(start, self.cursor, ""))
        self.cursor = start

    def edit(self, *edits: tuple[int, int, str]) -> None:
        """Several edits (start, end, text) in one notification, each on the text that the one before left."""
        self._change(*(self.buffer.replace(*edit) for edit in edits))

    def replace_all(self, text: str) -> None:
        self._change(self.buffer.replace_all(text))
        self.cursor = len(text)

    def ask(self, *, stream: bool = False, **context: Any) -> Asked:
        return self.client.ask_completion(self.uri, self.position, stream=stream, **context)

    async def complete(self, **context: Any) -> dict[str, Any]:
        return await self.ask(**context).item()

    async def accept(self, item: dict[str, Any]) -> None:
        """Insert as an editor does, tell the server of the change, then run the item's command."""
        start, end = (self.buffer.offset(item["range"][side]) for side in ("start", "end"))
        self._change(self.buffer.replace(start, end, item["insertText"]))
        self.cursor = start + len(item["insertText"])
        await self.client.execute(item["command"])

    def accept_part(self, item: dict[str, Any], length: int) -> None:
        """Insert the first `length` characters, and say so."""
        part = item["insertText"][:length]
        self.type(part)
        self.client.partially_accepted(item, len(part.encode("utf-16-le")) // 2)

    def close(self) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(self.uri)))

    def _change(self, *changes: dict[str, Any]) -> None:
        self.version += 1
        params = {"textDocument": {"uri": self.uri, "version": self.version}, "contentChanges": list(changes)}
        converter = self.client.protocol._converter
        self.client.text_document_did_change(converter.structure(params, types.DidChangeTextDocumentParams))


def _converter() -> Any:
    """Without pygls' named tuples, which rename keys that are no Python names."""
    converter = default_converter()
    for generic in (JsonRPCRequestMessage, JsonRPCNotification, JsonRPCResponseMessage):
        converter.register_structure_hook(generic, lambda data, cls: cls(**data))
    return converter


def _listen(client: EditorClient) -> None:
    # pytest-lsp's own handler of $/progress fails the test at a partial result.
    ours = (types.PROGRESS, types.WINDOW_WORK_DONE_PROGRESS_CREATE, types.WORKSPACE_CONFIGURATION)
    defaults = {method: handler for method, handler in DEFAULT_CLIENT_FEATURES.items() if method not in ours}
    register_lsp_features(client, defaults)

    @client.feature(types.PROGRESS)
    def progress(params: types.ProgressParams) -> None:
        partials = client._partials.get(params.token)
        (client.work[params.token] if partials is None else partials).append(params.value)

    @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
    def create(params: types.WorkDoneProgressCreateParams) -> None:
        assert params.token not in client.work
        client.work[params.token] = []

    @client.feature(types.WORKSPACE_CONFIGURATION)
    def configuration(params: types.ConfigurationParams) -> list[Any]:
        return [client.options for _ in params.items]

    @client.feature("specter/status")
    def status(params: dict[str, Any]) -> None:
        client.statuses.append(params)


def _initialize_params(
    encodings: tuple[str, ...], options: dict[str, Any], folder: str | None
) -> types.InitializeParams:
    return types.InitializeParams(
        capabilities=types.ClientCapabilities(
            general=types.GeneralClientCapabilities(
                position_encodings=[types.PositionEncodingKind(name) for name in encodings]
            ),
            text_document=types.TextDocumentClientCapabilities(
                inline_completion=types.InlineCompletionClientCapabilities(),
                synchronization=types.TextDocumentSyncClientCapabilities(),
            ),
            workspace=types.WorkspaceClientCapabilities(configuration=True),
            window=types.WindowClientCapabilities(work_done_progress=True),
        ),
        workspace_folders=[types.WorkspaceFolder(folder, "workspace")] if folder else None,
        initialization_options=options,
    )
