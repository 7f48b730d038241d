"""One client from its first byte to `exit`: the lifecycle of LSP, and an error for what is no message.

Knows no feature: between `initialize` and `shutdown` every message goes to the session that `open_session` makes,
after the client has its answer.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from lsp_server import handshake, jsonrpc
from lsp_server.handshake import Client
from lsp_server.jsonrpc import Message, Notification, Request, RpcError
from lsp_server.transport import ForeignError, FrameDecoder, FrameError, Output

_GRACE_S = 1.0  # for requests that do not heed their cancel: the process must end all the same


class Session(Protocol):
    """What answers a client's messages while the connection is open."""

    def handle(self, message: Message) -> None: ...

    def cancel_requests(self) -> None:
        """Answer every running request with an error, soon."""

    async def close(self) -> None:
        """Return when no request is left."""


OpenSession = Callable[[Client, Output], Session]


class Connection:
    """The state of one client: waiting for `initialize`, open, or shut down; ended when `ended` has an exit code."""

    def __init__(self, open_session: OpenSession, strict: bool = False, token: str | None = None) -> None:
        """`strict` takes no bytes but frames: the connection ends where LSP does. So it does, with a `token`, for a
        client that does not give it."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open_session = open_session
        self._token = token
        self._decoder = FrameDecoder(strict)
        self._output: Output | None = None
        self._session: Session | None = None
        self._shut_down = False

    def attach(self, output: Output) -> None:
        """Where replies go. Apart from the constructor, because an output reports the loss of the client to us."""
        self._output = output

    def receive(self, data: bytes) -> None:
        """Handle what the client sent; never raises."""
        try:
            for body in self._decoder.feed(data):
                if self.ended.done():
                    return
                self._answer(body)
        except ForeignError:
            self._end()

    def lost(self) -> None:
        """The client is gone: end of input, a broken pipe, or its process died."""
        self._end()

    async def close(self) -> None:
        """Stop what is running for the client, let the replies leave."""
        if self._session is not None:
            self._session.cancel_requests()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._session.close()
        await self._out.close()

    @property
    def _out(self) -> Output:
        assert self._output is not None, "attach() comes first"
        return self._output

    def _answer(self, body: bytes | FrameError) -> None:
        try:
            self._receive(body)
        except RpcError as fault:
            self._out.write(jsonrpc.error(fault.id, fault.code, fault.message))

    def _receive(self, body: bytes | FrameError) -> None:
        if isinstance(body, FrameError):
            raise RpcError(jsonrpc.PARSE_ERROR, str(body))
        message = jsonrpc.decode(body)
        if isinstance(message, Request):
            self._request(message)
        elif isinstance(message, Notification) and message.method == "exit":
            self._end()
        elif message is not None and self._session is not None and not self._shut_down:
            self._session.handle(message)

    def _request(self, request: Request) -> None:
        if self._shut_down:
            raise RpcError(jsonrpc.INVALID_REQUEST, "the server is shut down", request.id)
        if self._session is None and request.method != "initialize":
            raise RpcError(jsonrpc.NOT_INITIALIZED, "the first request is `initialize`", request.id)
        if self._session is None:
            self._initialize(request)
        elif request.method == "initialize":
            raise RpcError(jsonrpc.INVALID_REQUEST, "`initialize` comes once", request.id)
        elif request.method == "shutdown":
            self._shut_down = True
            self._session.cancel_requests()
            self._out.write(jsonrpc.result(request.id, None))
        else:
            self._session.handle(request)

    def _initialize(self, request: Request) -> None:
        try:
            client = handshake.read(request.params)
        except handshake.ParamsError as error:
            raise RpcError(jsonrpc.INVALID_PARAMS, str(error), request.id) from error
        if self._token is not None and not hmac.compare_digest(client.token.encode(), self._token.encode()):
            self._end()
            need = "this server needs its token, as initializationOptions.token"
            raise RpcError(jsonrpc.REQUEST_FAILED, need, request.id)
        self._out.write(jsonrpc.result(request.id, handshake.answer(client)))
        self._session = self._open_session(client, self._out)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(0 if self._shut_down else 1)
