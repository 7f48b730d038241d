"""What no editor should send, and some do: a reply for each request, none for a notification, and the server lives."""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

import pytest

from .raw_client import RawClient, completion_params, frame, is_reply

COMPLETE = "textDocument/inlineCompletion"
URI = "file:///w/malformed.py"
SECRET = "the_users_own_words"  # stands for code
TEXT = f"def {SECRET}(a, b):\n    return "
FUZZ = int(os.environ.get("SPECTER_FUZZ", "500"))
INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR = -32602, -32600, -32700
AT = {"line": 0, "character": 0}
HERE = {"start": AT, "end": AT}


@pytest.fixture
def server(raw):
    """The raw server with a document; afterwards: nothing leaked, and it still completes."""
    raw.fence()
    raw.open(URI, TEXT)
    first = len(raw.frames)
    yield raw
    raw.open(URI, TEXT)
    result = raw.ask(COMPLETE, completion_params(URI, 1, 11))
    assert result["items"][0]["insertText"].strip()
    assert raw.process.poll() is None
    assert SECRET not in bytes(raw.stderr).decode(errors="replace")
    for message in raw.frames[first:]:
        said = json.dumps(message)
        assert "raceback" not in said
        assert "site-packages" not in said
        if is_reply(message) and "error" in message:
            assert isinstance(message["error"]["code"], int)


def selected(**info: Any) -> dict[str, Any]:
    return GOOD | {"context": {"triggerKind": 2, "selectedCompletionInfo": info}}


def change(*changes: Any, uri: str = URI) -> dict[str, Any]:
    return {"textDocument": {"uri": uri, "version": 2}, "contentChanges": list(changes)}


def opened(**changes: Any) -> dict[str, Any]:
    return {"textDocument": {"uri": URI, "languageId": "python", "version": 1, "text": TEXT} | changes}


def without(params: dict[str, Any], *path: str) -> dict[str, Any]:
    params = copy.deepcopy(params)
    inner = params
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return params


GOOD = completion_params(URI, 1, 11)
BAD_PARAMS: list[tuple[str, str, Any]] = [
    ("null params", COMPLETE, None),
    ("array params", COMPLETE, [1, 2]),
    ("empty params", COMPLETE, {}),
    ("no document", COMPLETE, without(GOOD, "textDocument")),
    ("no uri", COMPLETE, without(GOOD, "textDocument", "uri")),
    ("no position", COMPLETE, without(GOOD, "position")),
    ("no context", COMPLETE, without(GOOD, "context")),
    ("uri is a number", COMPLETE, GOOD | {"textDocument": {"uri": 5}}),
    ("uri is null", COMPLETE, GOOD | {"textDocument": {"uri": None}}),
    ("document is a text", COMPLETE, GOOD | {"textDocument": URI}),
    ("line -1", COMPLETE, GOOD | {"position": {"line": -1, "character": 0}}),
    ("character -1", COMPLETE, GOOD | {"position": {"line": 0, "character": -1}}),
    ("line is a text", COMPLETE, GOOD | {"position": {"line": "1", "character": 0}}),
    ("line is 1.5", COMPLETE, GOOD | {"position": {"line": 1.5, "character": 0}}),
    ("line is true", COMPLETE, GOOD | {"position": {"line": True, "character": 0}}),
    ("position is an array", COMPLETE, GOOD | {"position": [1, 11]}),
    ("trigger is a text", COMPLETE, GOOD | {"context": {"triggerKind": "2"}}),
    ("array range", COMPLETE, selected(range=[AT, AT], text="x")),
    ("no text in the popup's item", COMPLETE, selected(range=HERE)),
    ("no document", "specter/context", {"position": AT}),
    ("no position", "specter/context", {"textDocument": {"uri": URI}}),
    ("command is a number", "workspace/executeCommand", {"command": 5}),
    ("no command", "workspace/executeCommand", {}),
    ("unknown command", "workspace/executeCommand", {"command": "specter.no", "arguments": []}),
    ("id is an object", "workspace/executeCommand", {"command": "specter.accepted", "arguments": [{}]}),
    ("no id", "workspace/executeCommand", {"command": "specter.accepted"}),
    ("two ids", "workspace/executeCommand", {"command": "specter.accepted", "arguments": ["a", "b"]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "params"), [row[1:] for row in BAD_PARAMS], ids=[f"{row[1]}: {row[0]}" for row in BAD_PARAMS]
)
def test_a_request_with_bad_params_is_refused(raw, method, params):
    """pygls answers these with a pop-up and no reply. Seen to fail with silence for invalid params."""
    id_ = raw.request(method, params)
    reply = raw.reply(id_)
    assert reply["error"]["code"] == INVALID_PARAMS
    raw.fence()
    assert len(raw.replies(id_)) == 1


@pytest.mark.parametrize("params", [
    GOOD | {"context": {"triggerKind": 0}},  # Invoked in clients of LSP 3.17's time
    GOOD | {"position": {"line": 10_000, "character": 10_000}},
    GOOD | {"unknown": {"deep": [1]}},
    GOOD | {"textDocument": {"uri": "not a uri at all %zz \\"}},
    GOOD | {"textDocument": {"uri": ""}},
    GOOD | {"workDoneToken": 5, "partialResultToken": 6},
])  # fmt: skip
def test_odd_params_that_can_be_served(server, params):
    """F38. Seen to fail without the hook for triggerKind, where 0 has no reply in pygls."""
    id_ = server.request(COMPLETE, params)
    assert "items" in server.reply(id_)["result"]
    server.fence()
    assert len(server.replies(id_)) == 1


@pytest.mark.parametrize("params", [
    GOOD | {"context": {"triggerKind": 3}},
    GOOD | {"position": {"line": 2**40, "character": 0}},
    GOOD | {"partialResultToken": {}},
])  # fmt: skip
def test_params_that_may_be_refused_or_served(server, params):
    """What LSP does not allow and nobody is harmed by; only silence would be wrong."""
    id_ = server.request(COMPLETE, params)
    reply = server.reply(id_)
    assert reply.get("error", {}).get("code") == INVALID_PARAMS or "items" in reply["result"]
    server.fence()
    assert len(server.replies(id_)) == 1
    tokens = [progress["token"] for progress in server.notifications("$/progress")]
    assert all(isinstance(token, (int, str)) for token in tokens)


BAD_NOTIFICATIONS: list[tuple[str, Any]] = [
    ("textDocument/didOpen", None),
    ("textDocument/didOpen", {"textDocument": {"uri": URI}}),
    ("textDocument/didOpen", opened(version="1", text=SECRET)),
    ("textDocument/didChange", {}),
    ("textDocument/didChange", change({"text": SECRET}, uri="file:///w/never.py")),
    ("textDocument/didChange", change({"range": [AT, AT], "text": SECRET})),
    ("textDocument/didChange", {"textDocument": {"uri": URI, "version": 2}, "contentChanges": SECRET}),
    ("textDocument/didChange", change({"range": {"start": {"line": -1, "character": 0}, "end": AT}, "text": SECRET})),
    ("textDocument/didClose", {"textDocument": {"uri": "file:///w/never.py"}}),
    ("textDocument/didClose", {"textDocument": None}),
    ("textDocument/didShowCompletion", {"item": SECRET}),
    ("textDocument/didShowCompletion", {"item": {"insertText": SECRET}}),
    ("textDocument/didPartiallyAcceptCompletion", {"item": {"insertText": SECRET}, "acceptedLength": "5"}),
    ("workspace/didChangeConfiguration", SECRET),
    ("workspace/didChangeWorkspaceFolders", {"event": {}}),
    ("$/cancelRequest", {"id": "never sent"}),
    ("$/cancelRequest", {}),
    ("$/cancelRequest", None),
    ("$/cancelRequest", {"id": [1]}),
    ("$/setTrace", {"value": "nonsense"}),
    ("$/progress", {"token": 1, "value": None}),
    ("initialized", 5),
    (COMPLETE, GOOD),  # a request without an id
]  # fmt: skip


def test_notifications_are_never_answered(server):
    """Nor shown to the user as an error, as in pygls. Seen to fail with a pop-up for what is refused."""
    replies = sum(map(is_reply, server.frames))
    messages = len(server.notifications("window/showMessage"))
    for method, params in BAD_NOTIFICATIONS:
        server.notify(method, params)
    server.fence()
    assert sum(map(is_reply, server.frames)) == replies + 1, "the fence's"
    assert len(server.notifications("window/showMessage")) == messages


def test_edits_of_a_half_wrong_kind_leave_the_document_alone(server):
    """A didChange that is refused is refused as a whole. (What the client's text is now, nobody can know.)"""
    wrong = {"range": {"start": AT, "end": {"line": "0", "character": 1}}, "text": "y"}
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "x"}, wrong]}
    server.notify("textDocument/didChange", params)
    context = server.ask("specter/context", {"textDocument": {"uri": URI}, "position": AT})
    assert context["suffix"] == TEXT


@pytest.mark.parametrize("id_", [0, 2**31 - 1, 2**53 + 1, 10**40, -7, "", "a" * 10_000, "\u0000\ud800", "1"])
def test_any_id_comes_back_as_it_was(server, id_):
    """Numbers and texts are different ids. Seen to fail with ids made texts."""
    server.request("specter/stats", {}, id=id_)
    assert "result" in server.reply(id_)
    server.fence()
    assert len(server.replies(id_)) == 1


@pytest.mark.parametrize("id_", [None, 1.5, True, [], {}])
def test_what_is_no_id_is_answered_without_one(server, id_):
    """As JSON-RPC wants it. A number with a fraction is none in LSP."""
    before = len(server.replies(None))
    server.send({"jsonrpc": "2.0", "id": id_, "method": "specter/stats", "params": {}})
    server.fence()
    new = server.replies(None)[before:]
    assert [reply["error"]["code"] for reply in new] == [INVALID_REQUEST]


BODIES: list[tuple[str, bytes, int]] = [
    ("no JSON", b"{", PARSE_ERROR),
    ("nothing", b" ", PARSE_ERROR),
    ("no UTF-8", b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}', PARSE_ERROR),
    ("NaN", b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": NaN}}', PARSE_ERROR),
    ("deep", b"[" * 100_000, PARSE_ERROR),
    ("a batch", b'[{"jsonrpc": "2.0", "id": 1, "method": "specter/stats"}]', INVALID_REQUEST),
    ("an empty batch", b"[]", INVALID_REQUEST),
    ("a number", b"5", INVALID_REQUEST),
    ("null", b"null", INVALID_REQUEST),
    ("an empty object", b"{}", INVALID_REQUEST),
]


@pytest.mark.parametrize(("body", "code"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
def test_bodies_that_are_no_message(server, body, code):
    """One error without an id, and the next message is served."""
    before = len(server.replies(None))
    server.send_bytes(frame(body))
    server.fence()
    assert [reply["error"]["code"] for reply in server.replies(None)[before:]] == [code]


@pytest.mark.parametrize("message", [
    {"id": "E1", "method": "specter/stats"},
    {"jsonrpc": "1.0", "id": "E2", "method": "specter/stats"},
    {"jsonrpc": "2.0", "id": "E3", "method": 5},
    {"jsonrpc": "2.0", "id": "E4", "method": "specter/stats", "params": 5},
    {"jsonrpc": "2.0", "id": "E5", "method": None},
    {"jsonrpc": "2.0", "id": "E6"},
])  # fmt: skip
def test_broken_envelopes_are_answered_with_their_id(server, message):
    server.send(message)
    assert server.reply(message["id"])["error"]["code"] == INVALID_REQUEST
    server.fence()
    assert len(server.replies(message["id"])) == 1


def test_a_running_id_used_again_is_refused(server):
    """Two requests, two replies, whichever comes first; the other id is untouched."""
    server.open("file:///w/twice.py", "")
    params = completion_params("file:///w/twice.py")
    server.request(COMPLETE, params, id="twice")
    server.request(COMPLETE, params, id="twice")
    server.wait(lambda _: len(server.replies("twice")) == 2, "two replies")
    server.fence()
    assert sorted("error" in reply for reply in server.replies("twice")) == [False, True]
    server.request("specter/stats", {}, id="twice")
    server.wait(lambda _: len(server.replies("twice")) == 3, "a third")


def test_replies_to_nothing_are_ignored(server):
    """Also with the id of a running request of the client. Seen to fail with responses that end it, as in pygls."""
    server.open("file:///w/reply.py", "")
    id_ = server.request(COMPLETE, completion_params("file:///w/reply.py"))
    for reply in (
        {"result": None},
        {"error": {"code": 1, "message": SECRET}},
        {"error": "nonsense"},
        {"result": 1, "error": None},
    ):
        server.send({"jsonrpc": "2.0", "id": id_, **reply})
        server.send({"jsonrpc": "2.0", "id": "never asked", **reply})
    assert server.reply(id_)["result"]["items"]
    server.fence()
    assert len(server.replies(id_)) == 1


STATS = b'{"jsonrpc": "2.0", "id": "%s", "method": "specter/stats", "params": {}}'
HEADERS: list[tuple[str, bytes]] = [
    ("lower case", b"content-length: %d\r\n\r\n"),
    ("no blank", b"Content-Length:%d\r\n\r\n"),
    ("bare newlines", b"Content-Length: %d\n\n"),
    ("content type", b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n"),
    ("content type first", b"Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: %d\r\n\r\n"),
    ("unknown content type", b"Content-Type: text/plain; charset=latin-1\r\nContent-Length: %d\r\n\r\n"),
    ("unknown header", b"X-Nonsense: 1\r\nContent-Length: %d\r\n\r\n"),
]


@pytest.mark.parametrize("header", [row[1] for row in HEADERS], ids=[row[0] for row in HEADERS])
def test_headers_that_can_be_understood(server, header):
    """Seen to fail with pygls' pattern: one case, one blank, one header."""
    id_ = f"header-{header!r}"
    body = json.dumps({"jsonrpc": "2.0", "id": id_, "method": "specter/stats", "params": {}}).encode()
    server.send_bytes(header % len(body) + body)
    assert "result" in server.reply(id_)


NOISE: list[tuple[str, bytes]] = [
    ("no length", b"X-Nonsense: 1\r\n\r\n"),
    ("length is a word", b"Content-Length: many\r\n\r\n"),
    ("length is negative", b"Content-Length: -5\r\n\r\n"),
    ("length is empty", b"Content-Length: \r\n\r\n"),
    ("length is 0", b"Content-Length: 0\r\n\r\n"),
    ("too short a length", b"Content-Length: 10\r\n\r\n" + STATS % b"short"),
    ("too long a length", b"Content-Length: 90\r\n\r\n" + STATS % b"long"),
    ("JSON without a header", STATS % b"bare" + b"\r\n\r\n"),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("bytes", bytes(range(256)) * 8 + b"\r\n\r\n"),
    ("blank lines", b"\r\n\r\n\r\n"),
]


@pytest.mark.parametrize("noise", [row[1] for row in NOISE], ids=[row[0] for row in NOISE])
def test_the_server_finds_its_way_after_noise(server, noise):
    """At most the next message is lost, the one after it is served. Seen to fail with a decoder that ends."""
    server.send_bytes(noise)
    server.send_bytes(frame(b'{"jsonrpc": "2.0", "method": "$/lost", "params": {}}'))
    server.fence()


def test_frames_in_any_pieces(server):
    """Byte by byte, and many at once."""
    for byte in frame(STATS % b"slowly"):
        server.send_bytes(bytes([byte]))
    assert "result" in server.reply("slowly")
    server.send_bytes(b"".join(frame(STATS % b"many-%d" % number) for number in range(200)))
    for number in range(200):
        server.reply(f"many-{number}")
    wide = json.dumps({"jsonrpc": "2.0", "id": "😀", "method": "specter/stats"}, ensure_ascii=False).encode()
    server.send_bytes(frame(wide))
    assert "result" in server.reply("😀")


def test_settings_that_cannot_be_are_shown_with_the_fix(server):
    """Once, whatever how often they come; the rest applies."""
    for _ in range(3):
        server.notify("workspace/didChangeConfiguration", {"settings": {"specter": {"maxTokns": 5, "device": "cpu"}}})
        server.fence()
    server.wait(lambda _: server.notifications("window/showMessage"), "a message")
    server.fence()
    shown = [message["message"] for message in server.notifications("window/showMessage")]
    assert len([text for text in shown if "maxTokns" in text and "maxTokens" in text]) == 1


# --- fuzz -------------------------------------------------------------------------------------------------------------

COMMAND = {"title": "t", "command": "specter.accepted", "arguments": ["x"]}
PARTLY = "textDocument/didPartiallyAcceptCompletion"
FOLDERS = {"event": {"added": [{"uri": "file:///w", "name": "w"}], "removed": []}}
TEMPLATES: list[dict[str, Any]] = [
    {"method": COMPLETE, "params": GOOD | {"partialResultToken": "p"}},
    {"method": COMPLETE, "params": selected(range=HERE, text="x")},
    {"method": "specter/context", "params": {"textDocument": {"uri": URI}, "position": AT}},
    {"method": "specter/stats", "params": {}},
    {"method": "workspace/executeCommand", "params": {"command": "specter.rejected", "arguments": ["x"]}},
    {"method": "textDocument/didOpen", "params": opened()},
    {"method": "textDocument/didChange", "params": change({"range": HERE, "text": SECRET}, {"text": TEXT})},
    {"method": "textDocument/didClose", "params": {"textDocument": {"uri": URI}}},
    {"method": "textDocument/didShowCompletion", "params": {"item": {"insertText": SECRET, "command": COMMAND}}},
    {"method": PARTLY, "params": {"item": {"insertText": SECRET}, "acceptedLength": 3}},
    {"method": "workspace/didChangeConfiguration", "params": {"settings": {"specter": {"maxTokens": 16}}}},
    {"method": "workspace/didChangeWorkspaceFolders", "params": FOLDERS},
    {"method": "$/cancelRequest", "params": {"id": "fuzz-1"}},
    {"result": {"a": 1}},
    {"error": {"code": 1, "message": SECRET}},
]  # fmt: skip
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    2**70,
    "",
    SECRET,
    "\ud800",
    [],
    {},
    [[]],
    {"": None},
    ["x"] * 50,
    {"uri": 1},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, below in inner for place in places(below, (*path, key)))]


def mutate(chance: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    """The message with one to three places taken out or replaced."""
    message = copy.deepcopy(message)
    for _ in range(chance.randint(1, 3)):
        *path, key = chance.choice(places(message)[1:] or [("params",)])
        holder = message
        for step in path:
            holder = holder[step]
        if isinstance(holder, dict) and chance.random() < 0.4:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(JUNK))
    return message


def spoil(chance: random.Random, body: bytes) -> bytes:
    """The body with some bytes taken out, doubled or changed; most are no JSON any more."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randint(1, 20)]
            case _:
                data[at:at] = data[at : at + 5]
        data = data or bytearray(b"x")
    return bytes(data)


def owed(body: bytes) -> tuple[str, Any]:
    """What the server owes for a body: one reply with an id, none, or perhaps an error without an id."""
    try:
        message = json.loads(body.decode("utf-8"), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return "error", None
    if not isinstance(message, dict):
        return "error", None
    id_ = message.get("id")
    if isinstance(id_, (int, str)) and not isinstance(id_, bool):
        is_answer = "method" not in message and ("result" in message or "error" in message)
        return ("none", None) if is_answer else ("reply", id_)
    if "id" not in message and isinstance(message.get("method"), str):
        return "none", None
    return "error", None


def test_fuzz(server, record_property):
    """Mutated messages with a fixed seed; SPECTER_FUZZ=5000 for a long run. Seen to fail with errors of the
    converter that nobody catches."""
    chance = random.Random(7)
    expected: list[str] = []
    errors = 0
    before = {json.dumps(id_): len(replies) for id_, replies in server.replies_by_id().items()}
    for number in range(FUZZ):
        message = {"jsonrpc": "2.0", **copy.deepcopy(chance.choice(TEMPLATES))}
        if "method" not in message or not message["method"].startswith(("textDocument/did", "$/", "workspace/did")):
            message["id"] = f"fuzz-{number}"
        if chance.random() < 0.9:
            message = mutate(chance, message)
        body = json.dumps(message).encode()
        if chance.random() < 0.15:
            body = spoil(chance, body)
        kind, id_ = owed(body)
        if kind == "reply" and json.dumps(id_) in expected:
            continue  # an id that is taken
        if kind == "reply":
            expected.append(json.dumps(id_))
        errors += kind == "error"
        server.send_bytes(frame(body))
        if number % 100 == 99:
            server.fence()  # no more than a hundred at once
    server.fence()
    for id_ in expected:
        server.wait(lambda _, id_=id_: _new_replies(server, before).get(id_), f"reply to {id_}")
    server.fence()
    new = _new_replies(server, before)
    fences = {id_ for id_ in new if id_.startswith('"raw-')}
    assert {id_: new.get(id_) for id_ in expected} == dict.fromkeys(expected, 1)
    assert new.get("null", 0) == errors
    assert set(new) - fences - set(expected) <= {"null"}, "replies to what was no request"
    record_property("replies", len(expected))


def _new_replies(server: RawClient, before: dict[str, int]) -> dict[str, int]:
    """How many replies each id got since then."""
    now = {json.dumps(id_): len(replies) for id_, replies in server.replies_by_id().items()}
    return {id_: count - before.get(id_, 0) for id_, count in now.items() if count > before.get(id_, 0)}
