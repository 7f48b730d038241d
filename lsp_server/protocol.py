"""pygls' protocol object with its gaps closed: exactly one reply to a request, whatever was wrong with it.

Beside server.py the only file that knows pygls. The gaps of pygls 2.1, each closed in one place:

- A request with params of a wrong type got no reply, only a pop-up (`_params`).
- `int("3")` and `str(5)` passed as numbers and texts, a trigger kind of 0 as nothing (`strict_converter`).
- An unexpected error sent its traceback, with paths and code, to the client (`_fail`).
- A response of the client with the id of one of its own running requests resolved that request (`_running`).
- A handler started a loop turn after its message, when the next message might have changed the document already
  (`_serve`: the handler itself runs at once, what it returns may be awaited).
- Bodies of messages, users' code, were logged (`_write`, and the log level of pygls).
- Its own document mirror splits lines where LSP does not (`_register_builtin_features`: not used).
"""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import cattrs
from lsprotocol import converters, types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol

from lsp_server import jsonrpc
from lsp_server.jsonrpc import Id, Message, Notification, Request, Response, RpcError
from lsp_server.transport import Output

_log = logging.getLogger(__name__)
logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs what clients send


@attrs.define
class InlineCompletionParams(types.InlineCompletionParams):
    """With the token for partial results: the meta model declares them, its params have no field for the token."""

    partial_result_token: types.ProgressToken | None = None


@attrs.define
class StatsParams:
    """`specter/stats`."""


@attrs.define
class ContextParams:
    """`specter/context`."""

    text_document: types.TextDocumentIdentifier
    position: types.Position


@attrs.define
class ShownParams:
    """`textDocument/didShowCompletion`."""

    item: types.InlineCompletionItem


@attrs.define
class PartlyAcceptedParams:
    """`textDocument/didPartiallyAcceptCompletion`: the length in UTF-16 units from the beginning, cumulative."""

    item: types.InlineCompletionItem
    accepted_length: int


STATS, CONTEXT = "specter/stats", "specter/context"
DID_SHOW, DID_PARTLY_ACCEPT = "textDocument/didShowCompletion", "textDocument/didPartiallyAcceptCompletion"

_REQUESTS: dict[str, type[Any]] = {
    types.TEXT_DOCUMENT_INLINE_COMPLETION: InlineCompletionParams,
    STATS: StatsParams,
    CONTEXT: ContextParams,
}
_NOTIFICATIONS: dict[str, type[Any]] = {DID_SHOW: ShownParams, DID_PARTLY_ACCEPT: PartlyAcceptedParams}
_JSON_TYPES = {int: "an integer", str: "a string", bool: "true or false"}


class Protocol(LanguageServerProtocol):
    """One client's messages to the registered features, and their results back."""

    def __init__(self, server: Any, converter: cattrs.Converter) -> None:
        super().__init__(server, converter)
        self._running: dict[Id, asyncio.Future[Any]] = {}
        self._output: Output | None = None
        self._translate: Callable[[BaseException], BaseException] = lambda error: error

    def attach(self, output: Output, translate: Callable[[BaseException], BaseException]) -> None:
        """Where messages go, and what makes a RpcError of the exceptions that handlers raise on purpose."""
        self._output = output
        self._translate = translate

    def handle(self, message: Message) -> None:
        """Take one message; never raises, and a request gets exactly one reply, now or later."""
        if isinstance(message, Response):
            self._resolve(message)
        elif isinstance(message, Request):
            self._serve(message)
        elif message.method == types.CANCEL_REQUEST:
            self._cancel(message.params)
        else:
            self._notice(message)

    def cancel_requests(self) -> None:
        for running in list(self._running.values()):
            running.cancel()

    def ask(self, method: str, params: Any) -> Awaitable[Any]:
        """A request to the client; the params and the result are plain JSON."""
        answer: Awaitable[Any] = self.send_request_async(
            method, self._converter.structure(params, _params_type(method))
        )
        return answer

    def unstructure(self, value: Any) -> Any:
        """The value as JSON."""
        return self._converter.unstructure(value)

    async def settled(self) -> None:
        """Return when every request has its reply."""
        while self._running:
            await asyncio.wait(self._running.values())
            await asyncio.sleep(0)  # their replies are sent by callbacks

    def _register_builtin_features(self) -> None:
        """None: the lifecycle is connection.py's, the documents are documents.py's."""

    def _serve(self, request: Request) -> None:
        try:
            if request.id in self._running:
                raise RpcError(jsonrpc.INVALID_REQUEST, "a request with this id is running")
            handler = self.fm.features.get(request.method)
            if handler is None or not _is_request(request.method):
                raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"there is no request {request.method}")
            outcome = handler(self._params(request))
        except Exception as error:
            self._fail(request, error)
        else:
            self._start(request, outcome)

    def _start(self, request: Request, outcome: Any) -> None:
        if not inspect.isawaitable(outcome):
            self._reply(request, outcome)
            return
        running = asyncio.ensure_future(outcome)
        self._running[request.id] = running
        running.add_done_callback(lambda done: self._finish(request, done))

    def _finish(self, request: Request, done: asyncio.Future[Any]) -> None:
        del self._running[request.id]
        if done.cancelled():
            self._fail(request, RpcError(jsonrpc.REQUEST_CANCELLED, "the request was cancelled"))
        elif (error := done.exception()) is not None:
            self._fail(request, error)
        else:
            self._reply(request, done.result())

    def _reply(self, request: Request, outcome: Any) -> None:
        try:
            body = jsonrpc.result(request.id, self.unstructure(outcome))
        except (ValueError, TypeError) as error:
            self._fail(request, error)
        else:
            self._write(body)

    def _fail(self, request: Request, error: BaseException) -> None:
        error = self._translate(error)
        if isinstance(error, RpcError):
            self._write(jsonrpc.error(request.id, error.code, error.message))
            return
        _log.error("%s failed: %s", request.method, _origin(error))
        _log.debug("%s failed", request.method, exc_info=error)
        self._write(jsonrpc.error(request.id, jsonrpc.INTERNAL_ERROR, f"internal error ({type(error).__name__})"))

    def _notice(self, notification: Notification) -> None:
        handler = self.fm.features.get(notification.method)
        if handler is None or _is_request(notification.method):
            return
        try:
            handler(self._params(notification))
        except RpcError as fault:
            _log.warning("%s is ignored: %s", notification.method, fault.message)
        except Exception as error:
            _log.error("%s failed: %s", notification.method, _origin(error))
            _log.debug("%s failed", notification.method, exc_info=error)

    def _cancel(self, params: Any) -> None:
        id_ = params.get("id") if isinstance(params, dict) else None
        running = self._running.get(id_) if isinstance(id_, (int, str)) else None
        if running is not None:
            running.cancel()

    def _params(self, message: Request | Notification) -> Any:
        wanted = _params_type(message.method)
        if wanted is None:
            return None
        try:
            return self._converter.structure({} if message.params is None else message.params, wanted)
        except Exception as error:  # cattrs raises groups, hooks of lsprotocol whatever they meet
            raise RpcError(jsonrpc.INVALID_PARAMS, f"invalid params: {_complaint(error)}") from error

    def _resolve(self, response: Response) -> None:
        asked = self._request_futures.pop(response.id, None)
        self._result_types.pop(response.id, None)
        if asked is None or asked.done():
            return
        if response.error is None:
            asked.set_result(response.result)
        else:
            asked.set_exception(JsonRpcException("the client refused"))

    def notify(self, method: str, params: Any | None = None) -> None:
        self._write(jsonrpc.encode({"method": method, "params": params}))

    def _send_data(self, data: Any) -> None:
        self._write(json.dumps(data, default=self._serialize_message, separators=(",", ":")).encode("ascii"))

    def _write(self, body: bytes) -> None:
        assert self._output is not None, "attach() comes first"
        self._output.write(body)


@functools.cache  # one for all clients: it writes a function for each type of message when the first one comes
def strict_converter() -> cattrs.Converter:
    """lsprotocol's converter without conversions: a number is a number, a text is a text."""
    converter = cattrs.Converter()
    for primitive in (int, str, bool):
        converter.register_structure_hook(primitive, _exactly(primitive))
    converter = converters.get_converter(converter)
    converter.register_structure_hook(types.ProgressToken | None, _token)  # lsprotocol's own takes anything
    converter.register_structure_hook(types.InlineCompletionTriggerKind, _trigger_kind)
    return converter


def _exactly(wanted: type) -> Callable[[Any, Any], Any]:
    def check(value: Any, target: Any) -> Any:
        if type(value) is not wanted:
            raise ValueError(f"expected {wanted.__name__}")
        return value if target is wanted else target(value)  # enumerations are subclasses

    return check


def _trigger_kind(value: Any, _: Any) -> types.InlineCompletionTriggerKind:
    """0 was Invoked when the feature was proposed; see `Session._is_automatic` for the 1 of that time."""
    if type(value) is not int:
        raise ValueError("expected int")
    return types.InlineCompletionTriggerKind(value or 1)


class _TokenError(ValueError):
    pass


def _token(value: Any, _: Any) -> Any:
    if value is not None and type(value) not in (int, str):
        raise _TokenError("an integer or a string is expected")
    return value


def _is_request(method: str) -> bool:
    known = types.METHOD_TO_TYPES.get(method)
    return method in _REQUESTS if known is None else known[1] is not None


def _params_type(method: str) -> Any:
    ours = _REQUESTS.get(method) or _NOTIFICATIONS.get(method)
    return ours or types.METHOD_TO_TYPES[method][2]


def _complaint(error: BaseException) -> str:
    """Where and what, of the first thing that is wrong, in the protocol's words; without values, which may be code."""
    if not isinstance(error, (cattrs.BaseValidationError, KeyError)):
        return "wrong type"
    what, _, path = cattrs.transform_error(error, format_exception=_expected)[0].rpartition(" @ ")
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), path.removeprefix("$.")) + f": {what}"


def _expected(error: BaseException, wanted: Any) -> str:
    if isinstance(error, KeyError):
        return "it is missing"
    if wanted in _JSON_TYPES:
        return f"{_JSON_TYPES[wanted]} is expected"
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return f"one of {', '.join(str(member.value) for member in wanted)} is expected"
    if isinstance(wanted, type) and attrs.has(wanted):
        return "an object is expected"
    return str(error) if isinstance(error, _TokenError) else "it cannot have this value"


def _origin(error: BaseException) -> str:
    """The error's class and place, on one line and without its message, which may quote code."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return type(error).__name__ + place
