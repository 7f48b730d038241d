"""JSON-RPC 2.0 envelopes: bytes to messages and back. Knows no method and no transport."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Id = int | str

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_INITIALIZED = -32002
REQUEST_FAILED = -32803
SERVER_CANCELLED = -32802
REQUEST_CANCELLED = -32800


@dataclass(frozen=True, slots=True)
class Request:
    """Wants exactly one reply with its id."""

    id: Id
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Response:
    """The client's answer to a request of ours; `error` None means it succeeded."""

    id: Id
    result: Any
    error: dict[str, Any] | None


Message = Request | Notification | Response


class RpcError(Exception):
    """An error for the client: what `error` will hold, and the id of the request it answers, if it could be read."""

    def __init__(self, code: int, message: str, id: Id | None = None) -> None:  # noqa: A002 - the protocol's word
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


def decode(body: bytes) -> Message | None:
    """The message in a frame; None for a broken notification, which nobody may answer. Raises RpcError."""
    try:
        data = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, "the message is not JSON in UTF-8") from error
    if not isinstance(data, dict):
        raise RpcError(INVALID_REQUEST, "a message is one JSON object; LSP has no batches")
    return _message(data)


def result(id: Id, value: Any) -> bytes:  # noqa: A002
    return encode({"id": id, "result": value})


def error(id: Id | None, code: int, message: str) -> bytes:  # noqa: A002
    return encode({"id": id, "error": {"code": code, "message": message}})


def encode(fields: dict[str, Any]) -> bytes:
    """A message's body. Not-ASCII is escaped: half a surrogate pair in a user's text has no UTF-8."""
    return json.dumps({"jsonrpc": "2.0", **fields}, separators=(",", ":"), allow_nan=False).encode("ascii")


def _message(data: dict[str, Any]) -> Message | None:
    method, params = data.get("method"), data.get("params")
    id_: Id | None = data["id"] if _is_id(data.get("id")) else None
    if "method" not in data and id_ is not None and ("result" in data or "error" in data):
        fault = data.get("error")
        return Response(id_, data.get("result"), fault if isinstance(fault, dict) or fault is None else {})
    if isinstance(method, str) and "id" not in data:
        return Notification(method, params) if _is_sound(data) else None
    if not isinstance(method, str) or id_ is None or not _is_sound(data):
        raise RpcError(INVALID_REQUEST, _complaint(data), id_)
    return Request(id_, method, params)


def _is_sound(data: dict[str, Any]) -> bool:
    return data.get("jsonrpc") == "2.0" and isinstance(data.get("params"), (dict, list, type(None)))


def _complaint(data: dict[str, Any]) -> str:
    if data.get("jsonrpc") != "2.0":
        return 'a message has "jsonrpc": "2.0"'
    if not isinstance(data.get("method"), str):
        return '"method" is a string'
    if not _is_id(data.get("id")):
        return '"id" is an integer or a string'
    return '"params" is an object or an array'


def _is_id(value: object) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
