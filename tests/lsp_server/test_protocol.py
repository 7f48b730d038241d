"""What no client should send, and the lifecycle: exactly one reply for a request, none for a notification."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsp_fakes import Client, FakeEngine
from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder

from lsp_server import handshake, jsonrpc
from lsp_server.jsonrpc import Notification, Request, Response, RpcError
from lsp_server.protocol import strict_converter
from lsp_server.server import Server

URI = "file:///w/a.py"
GOOD = {
    "textDocument": {"uri": URI},
    "position": {"line": 0, "character": 0},
    "context": {"triggerKind": 2},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with one value replaced; ... deletes it."""
    params = copy.deepcopy(GOOD)
    *ways, last = path.split(".")
    inner: Any = params
    for way in ways:
        inner = inner[way]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return params


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"jsonrpc": NaN}', b"[" * 100_000, b'"\\x"', b"1" * 10_000 + b"x"],
)
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(RpcError) as caught:
        jsonrpc.decode(body)
    assert (caught.value.code, caught.value.id) == (-32700, None)


@pytest.mark.parametrize(
    ("message", "id_"),
    [
        ([], None),
        (5, None),
        ({}, None),
        ({"jsonrpc": "2.0"}, None),
        ({"jsonrpc": "2.0", "id": 1}, 1),
        ({"jsonrpc": "1.0", "id": 1, "method": "x"}, 1),
        ({"id": "a", "method": "x"}, "a"),
        ({"jsonrpc": "2.0", "id": None, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "params": 5}, 1),
    ],
)
def test_what_is_no_message_is_an_invalid_request(message: Any, id_: Any) -> None:
    with pytest.raises(RpcError) as caught:
        jsonrpc.decode(json.dumps(message).encode())
    assert (caught.value.code, caught.value.id) == (-32600, id_)


@pytest.mark.parametrize(
    "message",
    [{"jsonrpc": "1.0", "method": "x"}, {"method": "x"}, {"jsonrpc": "2.0", "method": "x", "params": "text"}],
)
def test_a_broken_notification_is_nobodys(message: Any) -> None:
    assert jsonrpc.decode(json.dumps(message).encode()) is None


def test_messages() -> None:
    def decode(**fields: Any) -> Any:
        return jsonrpc.decode(json.dumps({"jsonrpc": "2.0", **fields}).encode())

    assert decode(id=0, method="m") == Request(0, "m", None)
    assert decode(method="m", params=[]) == Notification("m", [])
    assert decode(id="a", result=None) == Response("a", None, None)
    assert decode(id=1, error={"code": 1}) == Response(1, None, {"code": 1})


# --- lifecycle --------------------------------------------------------------------------------------------------------


async def test_before_initialize() -> None:
    client = Client()
    client.open(URI, "")
    client.notify("nonsense")
    assert (await client.ask(1, "specter/stats"))["error"]["code"] == -32002
    assert (await client.ask(2, "shutdown"))["error"]["code"] == -32002
    assert len(client.messages) == 2


@pytest.mark.parametrize("params", [None, [], {}, {"capabilities": 5}, {"capabilities": {}, "processId": "5"}])
async def test_an_initialize_that_cannot_be_read_may_be_tried_again(params: Any) -> None:
    client = Client()
    assert (await client.ask(1, "initialize", params))["error"]["code"] == -32602
    assert "result" in await client.ask(
        2, "initialize", {"capabilities": {"general": 5, "window": [], "workspace": None}}
    )
    assert (await client.ask(3, "initialize", {"capabilities": {}}))["error"]["code"] == -32600


async def test_after_shutdown(client: Client) -> None:
    """Seen to fail with pygls' own handling, which does not answer."""
    client.open(URI, "")
    assert (await client.ask(1, "shutdown"))["result"] is None
    assert (await client.ask(2, "specter/stats"))["error"]["code"] == -32600
    assert (await client.ask(3, "shutdown"))["error"]["code"] == -32600
    client.notify("textDocument/didClose", textDocument={"uri": URI})
    assert not client.connection.ended.done()
    client.notify("exit")
    assert await client.connection.ended == 0


async def test_shutdown_answers_what_is_running(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(asyncio.Event().wait))
    client.open(URI, "")
    client.request(1, URI, 0, 0)
    await client.settle()
    client.send(id=2, method="shutdown")
    assert (await client.reply(1))["error"]["code"] == -32800
    assert (await client.reply(2))["result"] is None
    assert FakeEngine.made[0].live == 0


async def test_exit_without_shutdown(client: Client) -> None:
    client.notify("exit")
    assert await client.connection.ended == 1


async def test_the_end_of_input_answers_what_is_running(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(asyncio.Event().wait))
    client.open(URI, "")
    client.request(1, URI, 0, 0)
    await client.settle()
    client.connection.lost()
    assert await client.connection.ended == 1
    await client.connection.close()
    assert client.replies(1)[0]["error"]["code"] == -32800
    assert FakeEngine.made[0].live == 0
    assert client.output.closed


# --- requests and notifications ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        {},
        *(changed(path, ...) for path in ("textDocument", "textDocument.uri", "position", "position.line", "context")),
        *(changed("position.line", value) for value in (-1, "3", 1.5, None, True, [], 2**31)),
        *(changed("textDocument.uri", value) for value in (5, None, {})),
        *(changed("context.triggerKind", value) for value in (3, "1", None, -1)),
        changed("context.selectedCompletionInfo", {"range": [{}, {}], "text": "x"}),
        changed("position", "0:0"),
        changed("partialResultToken", {}),
    ],
)
async def test_wrong_params_get_one_error(client: Client, params: Any) -> None:
    """pygls sends a pop-up and no reply. Seen to fail with lsprotocol's own converter, for which "3" is a line."""
    client.open(URI, "")
    reply = await client.ask(1, "textDocument/inlineCompletion", params)
    assert reply["error"]["code"] == -32602
    assert reply["error"]["message"].startswith("invalid params: ")
    assert client.of("window/showMessage") == []
    await client.settle()
    assert len(client.replies(1)) == 1
    assert FakeEngine.made[0].requests == []


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        (changed("partialResultToken", 1.5), "partialResultToken: an integer or a string is expected"),
        (changed("textDocument.uri", 5), "textDocument.uri: a string is expected"),
        ({}, "context: it is missing"),
        (changed("context.triggerKind", 9), "context.triggerKind: one of 1, 2 is expected"),
        (changed("context", 5), "context: an object is expected"),
        (changed("position.character", "0"), "position.character: an integer is expected"),
    ],
)
async def test_complaints_are_in_the_words_of_the_wire(client: Client, params: Any, complaint: str) -> None:
    """Failed with cattrs' own: `expected Union @ $.partial_result_token`."""
    reply = await client.ask(1, "textDocument/inlineCompletion", params)
    assert reply["error"]["message"] == f"invalid params: {complaint}"


async def test_commands_say_what_they_take(client: Client) -> None:
    said = []
    for command in ("specter.restartEngine", "specter.accepted"):
        reply = await client.ask(command, "workspace/executeCommand", {"command": command, "arguments": [1, 2]})
        said.append(reply["error"]["message"])
    assert said == [
        "specter.restartEngine takes no arguments",
        "specter.accepted takes one argument, the id of a suggestion",
    ]


@pytest.mark.parametrize("trigger", [0, 1, 2])
async def test_trigger_kinds_of_old_and_new_clients(client: Client, trigger: int) -> None:
    client.open(URI, "")
    client.send(id=1, method="textDocument/inlineCompletion", params=changed("context.triggerKind", trigger))
    assert (await client.reply(1))["result"]["items"]


@pytest.mark.parametrize(
    "method", ["nonsense", "$/nonsense", "textDocument/hover", "textDocument/didOpen", "exit", "initialized", ""]
)
async def test_what_is_no_request_of_ours(client: Client, method: str) -> None:
    assert (await client.ask(1, method))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("nonsense", {}),
        ("$/nonsense", {}),
        ("textDocument/didOpen", {}),
        ("textDocument/didOpen", {"textDocument": {"uri": 5, "languageId": "python", "version": 1, "text": ""}}),
        ("textDocument/didChange", {"textDocument": {"uri": "never", "version": 1}, "contentChanges": [{"text": "x"}]}),
        ("textDocument/didChange", {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"range": 5}]}),
        ("textDocument/didChange", {"textDocument": {"uri": URI, "version": 2}}),
        ("textDocument/didClose", {"textDocument": {"uri": "never"}}),
        ("textDocument/inlineCompletion", GOOD),
        ("shutdown", {}),
        ("initialize", {"capabilities": {}}),
        ("$/cancelRequest", {"id": 999}),
        ("$/cancelRequest", {"id": [5]}),
        ("$/cancelRequest", {}),
        ("textDocument/didShowCompletion", {"item": 5}),
        ("textDocument/didShowCompletion", {"item": {"insertText": "x"}}),
        ("workspace/didChangeWorkspaceFolders", {"event": {}}),
    ],
)
async def test_notifications_are_never_answered(client: Client, method: str, params: Any) -> None:
    client.open(URI, "text")
    before = len(client.messages)
    client.send(method=method, params=params)
    await client.settle()
    assert len(client.messages) == before
    assert client.connection._session is not None
    assert client.connection._session.session.documents.get(URI).text == "text"  # type: ignore[attr-defined]
    assert "result" in await client.ask(1, "specter/stats")


async def test_an_id_that_is_in_use(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(gate.wait))
    client.open(URI, "")
    client.request(1, URI, 0, 0)
    await client.settle()
    assert (await client.ask(1, "specter/stats"))["error"]["code"] == -32600
    gate.set()
    await client.until(lambda: len(client.replies(1)) == 2)
    assert client.replies(1)[1]["result"]["items"]


async def test_a_response_never_answers_the_clients_own_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pygls keeps both kinds of requests in one table. Seen to fail with `_running` being that table."""
    gate = asyncio.Event()
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(gate.wait))
    client.open(URI, "")
    client.request(1, URI, 0, 0)
    await client.settle()
    client.send(id=1, result={"items": ["forged"]})
    client.send(id="unknown", error={"code": 1, "message": "x"})
    gate.set()
    assert (await client.reply(1))["result"]["items"][0]["insertText"] == "return a + b"


@pytest.mark.parametrize("data", [b"Content-Length: 5\r\n\r\nhello", b"X: y\r\n\r\n", b"Content-Length: 0\r\n\r\n"])
async def test_bytes_that_are_no_message(client: Client, data: bytes) -> None:
    before = len(client.messages)
    client.raw(data)
    (reply,) = client.messages[before:]
    assert (reply["id"], reply["error"]["code"]) == (None, -32700)
    assert "result" in await client.ask(1, "specter/stats")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
methods = st.text(max_size=5) | st.sampled_from(
    [
        "textDocument/inlineCompletion",
        "specter/context",
        "specter/stats",
        "workspace/executeCommand",
        "textDocument/didChange",
        "textDocument/didShowCompletion",
        "$/cancelRequest",
    ]
)
paths = st.sampled_from(
    [
        "textDocument",
        "textDocument.uri",
        "position",
        "position.line",
        "position.character",
        "context",
        "context.triggerKind",
        "context.selectedCompletionInfo",
        "partialResultToken",
        "workDoneToken",
    ]
)


@given(st.lists(st.tuples(st.booleans(), methods, st.builds(changed, paths, json_values) | json_values), max_size=10))
@settings(max_examples=60, deadline=None)
async def test_any_messages_get_one_reply_each_or_none(messages: list[tuple[bool, str, Any]]) -> None:
    client = await Client().ready()
    client.open(URI, "x")
    before = len(client.replies(None))
    for number, (is_request, method, params) in enumerate(messages):
        client.send(**({"id": number} if is_request else {}), method=method, params=params)
    assert "result" in await client.ask("last", "specter/stats")
    await client.until(lambda: all(client.replies(n) for n, message in enumerate(messages) if message[0]))
    await client.settle()
    for number, (is_request, _, _) in enumerate(messages):
        assert len(client.replies(number)) == is_request
    assert len(client.replies(None)) == before
    assert not any("traceback" in json.dumps(message).lower() for message in client.messages)


# --- what is advertised -----------------------------------------------------------------------------------------------


async def test_the_handshake_says_what_pygls_would(client: Client) -> None:
    """The capabilities are written before pygls is imported, so nothing but this test keeps the two together."""
    server = client.connection._session
    assert isinstance(server, Server)
    fm = server.protocol.fm
    built = ServerCapabilitiesBuilder(
        types.ClientCapabilities(),
        set(fm.features),
        fm.feature_options,
        list(fm.commands),
        types.TextDocumentSyncKind.Incremental,
        None,
        types.PositionEncodingKind.Utf16,
    ).build()
    said = handshake.answer(handshake.read({"capabilities": {}}))
    assert strict_converter().unstructure(built) == said["capabilities"]
    assert strict_converter().structure(said, types.InitializeResult).server_info.name == "specter"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["utf-8", "utf-16", "utf-32"], "utf-8"),
        (["utf-32"], "utf-32"),
        (["utf-7", 5, "utf-16"], "utf-16"),
        (["utf-7"], "utf-16"),
        ([], "utf-16"),
        (None, "utf-16"),
        ("utf-8", "utf-16"),
    ],
)
def test_the_encoding(offered: Any, chosen: str) -> None:
    assert handshake.read({"capabilities": {"general": {"positionEncodings": offered}}}).encoding == chosen
