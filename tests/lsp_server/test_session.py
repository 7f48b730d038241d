"""Settings, status, progress, feedback and the questions, through the whole server with a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lsp_fakes import Client, FakeEngine, FakeEngineError, fake_host, fake_parts

from engine.config import ConfigError, EngineConfig
from lsp_server.engine_host import EngineHost, Parts

URI = "file:///w/a.py"
POSITION = {"position": {"line": 0, "character": 0}}


def states(client: Client) -> list[str]:
    return [status["state"] for status in client.of("specter/status")]


async def complete(client: Client, id_: Any, uri: str = URI) -> list[Any]:
    client.request(id_, uri, 0, 0)
    items: list[Any] = (await client.reply(id_))["result"]["items"]
    return items


async def test_while_loading_there_is_nothing_and_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """F43: a cancel then must not stop the load either."""
    gate = asyncio.Event()
    monkeypatch.setattr(FakeEngine, "load_gate", gate)
    client = await Client().greet()
    client.open(URI, "")
    assert await complete(client, 1) == []
    client.notify("$/cancelRequest", id=1)
    assert set(states(client)) == {"loading"}
    seen = len(states(client))
    assert await complete(client, 2) == []
    assert len(states(client)) > seen
    gate.set()
    await client.until(lambda: states(client)[-1] == "ready")
    assert await complete(client, 3)
    assert len(FakeEngine.made) == 1


async def test_the_load_is_shown_as_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    client = await Client().ready(window={"workDoneProgress": True})
    (created,) = client.of("window/workDoneProgress/create")
    await client.until(lambda: client.of("$/progress") == [] or client.of("$/progress")[-1]["value"]["kind"] == "end")
    gate = asyncio.Event()
    monkeypatch.setattr(FakeEngine, "load_gate", gate)
    await client.ask(1, "workspace/executeCommand", {"command": "specter.restartEngine"})
    await client.settle()
    gate.set()
    await client.until(lambda: states(client)[-1] == "ready")
    kinds: dict[str, list[str]] = {}
    for params in client.of("$/progress"):
        kinds.setdefault(params["token"], []).append(params["value"]["kind"])
    assert kinds, created
    assert all(kind[0] == "begin" and kind[-1] == "end" and kind.count("end") == 1 for kind in kinds.values())


async def test_no_progress_for_a_client_without_it(client: Client) -> None:
    assert client.of("window/workDoneProgress/create") == []


async def test_models_that_cannot_load_are_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "load_error", ConfigError("target", "no such folder; give a path"))
    client = await Client().greet({"target": "/nowhere"})
    await client.until(lambda: states(client)[-1:] == ["error"])
    assert client.of("specter/status")[-1]["message"] == "target: no such folder; give a path"
    client.open(URI, "")
    assert await complete(client, 1) == []
    monkeypatch.setattr(FakeEngine, "load_error", None)
    await client.ask(2, "workspace/executeCommand", {"command": "specter.restartEngine"})
    await client.until(lambda: states(client)[-1] == "ready")
    assert await complete(client, 3)


async def test_other_models_in_place_of_those_asked_for_are_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the engine goes on where memory is short. Seen to fail: the engine not watched."""
    client = await Client().greet({})
    await client.until(lambda: states(client)[-1:] == ["ready"])

    def short(request: Any) -> list[str | Exception]:
        FakeEngine.made[-1].description |= {"notice": "memory is short: a small pair", "pair": "small"}
        FakeEngine.made[-1].changed()
        return [FakeEngineError("memory is short: a small pair")]

    monkeypatch.setattr(FakeEngine, "script", staticmethod(short))
    client.open(URI, "")
    assert await complete(client, 1) == []
    monkeypatch.setattr(FakeEngine, "script", staticmethod(lambda request: ["return"]))
    assert await complete(client, 2)
    last = client.of("specter/status")[-1]
    assert (last["state"], last["message"]) == ("ready", "memory is short: a small pair")
    said = len(client.of("specter/status"))
    FakeEngine.made[-1].changed()
    await client.ask(3, "specter/stats")
    assert len(client.of("specter/status")) == said


async def test_a_bad_file_of_heads_costs_the_drafter_not_the_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: an error like any other, and no suggestion any more."""
    load = FakeEngine.load

    async def load_without_heads(engine: FakeEngine, report: Any) -> None:
        for key in ("heads", "eagle"):
            if getattr(engine.config, key):
                raise ConfigError(key, "it is damaged; train another")
        await load(engine, report)

    monkeypatch.setattr(FakeEngine, "load", load_without_heads)
    client = await Client().greet({"heads": "bad", "eagle": "bad", "target": "/a"})
    await client.until(lambda: states(client)[-1:] == ["ready"])
    message = client.of("specter/status")[-1]["message"]
    assert message == "heads: it is damaged; train another; eagle: it is damaged; train another"
    assert FakeEngine.made[-1].config == EngineConfig(target="/a")
    client.open(URI, "")
    assert await complete(client, 1)


async def test_a_load_that_is_not_wanted_any_more_is_not_waited_for() -> None:
    """Seen to fail: with the other pair's download still on, settings changed back waited for its end."""

    class Endless(FakeEngine):
        def __init__(self, config: EngineConfig) -> None:
            super().__init__(config)
            self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()

        async def load(self, report: Any) -> None:
            if self.config.pair == "slow":
                await self.end.wait()
                raise FakeEngineError("the engine was closed")
            await super().load(report)

        def close(self) -> None:  # in a thread
            super().close()
            self.loop.call_soon_threadsafe(self.end.set)

    async def comes(what: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not what():  # noqa: ASYNC110 - what changes sends no message
                await asyncio.sleep(0.01)

    client = await Client(EngineHost({}, lambda: fake_parts()._replace(engine=Endless))).ready()
    for count, (pair, state) in enumerate((("slow", "loading"), ("embedded", "ready"), ("slow", "loading")), start=2):
        client.notify("workspace/didChangeConfiguration", settings={"specter": {"pair": pair}})
        await comes(lambda count=count, state=state: len(FakeEngine.made) == count and states(client)[-1] == state)
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"enabled": False}})
    await comes(lambda: states(client)[-1] == "off" and FakeEngine.made[-1].closed)
    await comes(lambda: client.host.health.state == "off")
    assert "error" not in states(client)
    assert [engine.config.pair for engine in FakeEngine.made] == ["embedded", "slow", "embedded", "slow"]


async def test_disabled_means_no_engine_at_all() -> None:
    """F45. Seen to fail with the host's configure() called first and the settings read after."""
    client = await Client().greet({"enabled": False})
    await client.until(lambda: states(client)[-1:] == ["off"])
    client.open(URI, "")
    assert await complete(client, 1) == []
    assert FakeEngine.made == []
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"enabled": True}})
    await client.until(lambda: states(client)[-1] == "ready")
    assert await complete(client, 2)
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"enabled": False}})
    await client.until(lambda: states(client)[-1] == "off" and FakeEngine.made[0].closed)
    assert await complete(client, 3) == []
    assert len(FakeEngine.made[0].requests) == 1


async def test_disabling_ends_what_runs_and_leaves_no_error_behind(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngine, "pause", staticmethod(asyncio.Event().wait))
    client.open(URI, "")
    client.request(1, URI, 0, 0)
    await client.settle()
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"enabled": False}})
    assert (await client.reply(1))["result"] == {"items": []}
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"enabled": True}})
    await client.until(lambda: len(FakeEngine.made) == 2 and states(client)[-1] == "ready")


async def test_an_engine_that_cannot_be_imported_is_a_status_and_may_be_tried_again() -> None:
    broken = True

    def parts() -> Parts:
        if broken:
            raise ImportError("No module named 'torch'")
        return fake_parts()

    client = await Client(EngineHost({}, parts)).greet()
    await client.until(lambda: states(client)[-1:] == ["error"])
    assert "No module named 'torch'" in client.of("specter/status")[-1]["message"]
    broken = False
    await client.ask(1, "workspace/executeCommand", {"command": "specter.restartEngine"})
    await client.until(lambda: states(client)[-1] == "ready")


async def test_only_other_models_are_loaded_anew(client: Client) -> None:
    client.open(URI, "")
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"temperature": 0.5, "mode": "sampled"}})
    await client.settle()
    await complete(client, 1)
    assert len(FakeEngine.made) == 1
    assert FakeEngine.made[0].requests[-1].sampling.temperature == 0.5
    client.notify("workspace/didChangeConfiguration", settings={"specter": {"target": "/other"}})
    await client.until(lambda: len(FakeEngine.made) == 2 and states(client)[-1] == "ready")
    assert FakeEngine.made[0].closed
    assert FakeEngine.made[1].config.target == "/other"


async def test_the_command_line_wins() -> None:
    client = await Client(fake_host({"pair": "mine", "max_tokens": 5})).ready({"pair": "theirs", "maxTokens": 9})
    client.open(URI, "")
    await complete(client, 1)
    assert FakeEngine.made[0].config.pair == "mine"
    assert FakeEngine.made[0].requests[0].max_tokens == 5


async def test_what_is_wrong_is_shown_once_and_the_rest_applies() -> None:
    client = await Client().ready({"temprature": 1, "maxTokens": "many", "topP": 7, "seed": 3})
    shown = [params["message"] for params in client.of("window/showMessage")]
    assert len(shown) == 3
    assert any("did you mean specter.temperature?" in message for message in shown)
    assert any(message.startswith("specter.maxTokens: expected") for message in shown)
    assert any(message.startswith("specter.topP: 7 is not possible") for message in shown)
    assert FakeEngine.made[0].config.seed == 3
    client.notify("workspace/didChangeConfiguration", settings=None)
    await client.settle()
    assert len(client.of("window/showMessage")) == 3


async def test_settings_are_pulled_from_a_client_that_has_them() -> None:
    client = Client()
    client.settings = {"maxTokens": 12, "target": None}
    capabilities = {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}
    await client.ready({"maxTokens": 3}, workspace=capabilities)
    assert client.of("client/registerCapability")[0]["registrations"][0]["method"] == "workspace/didChangeConfiguration"
    client.open(URI, "")
    await complete(client, 1)
    client.settings = {"maxTokens": 13}
    client.notify("workspace/didChangeConfiguration", settings=None)
    await client.until(lambda: len(client.of("workspace/configuration")) == 2)
    await client.settle()
    await complete(client, 2)
    assert [request.max_tokens for request in FakeEngine.made[0].requests] == [12, 13]


async def test_languages_and_excluded_files() -> None:
    client = await Client().ready({"languages": {"markdown": False}, "exclude": ["private/**"]})
    for uri, language in [(URI, "markdown"), ("file:///w/.env", "shell"), ("file:///w/private/b.py", "python")]:
        client.open(uri, "text", language)
        assert await complete(client, uri, uri) == []
    assert FakeEngine.made[0].requests == []
    params = {"textDocument": {"uri": "file:///w/.env"}, "position": {"line": 0, "character": 0}}
    assert (await client.ask("c", "specter/context", params))["result"] == {"excluded": True}


async def test_folders_may_change(client: Client) -> None:
    event = {"added": [{"uri": "file:///v", "name": "v"}], "removed": [{"uri": "file:///w", "name": "w"}]}
    client.notify("workspace/didChangeWorkspaceFolders", event=event)
    client.open("file:///v/deep/b.py", "")
    await complete(client, 1, "file:///v/deep/b.py")
    (request,) = FakeEngine.made[0].requests
    assert (request.path, request.repository) == ("deep/b.py", "v")


@pytest.mark.parametrize("uri", ["file://[bad", "file://[x/y.py", "http://[::1"])
async def test_what_is_no_uri_is_no_folder_and_no_document(client: Client, uri: str) -> None:
    """urlsplit raises at them: a folder made every completion of the session fail."""
    folder = {"uri": uri, "name": "x"}
    client.notify("workspace/didChangeWorkspaceFolders", event={"added": [folder], "removed": []})
    for root in ({"rootUri": uri}, {"workspaceFolders": [folder]}):
        other = Client(client.host)
        await other.ask("init", "initialize", {"processId": None, "capabilities": {}, **root})
        other.notify("initialized")
        await other.until(lambda other=other: other.of("specter/status"))
        for each in (client, other):
            each.open(URI, "")
            each.open(uri, "")
            assert await complete(each, f"{root}1")
            assert await complete(each, f"{root}2", uri) == []
            assert "error" in await each.ask(f"{root}3", "specter/context", {"textDocument": {"uri": uri}, **POSITION})


async def test_context_is_what_a_request_would_send(client: Client) -> None:
    client.open(URI, "a\r\nb\r\n")
    params = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 1}}
    context = (await client.ask(1, "specter/context", params))["result"]
    assert context == {"prompt": "<P>a\nb<S>\n<M>", "prefix": "a\nb", "suffix": "\n", "snippets": [], "tokens": 7}
    params["textDocument"]["uri"] = "file:///w/never.py"
    assert (await client.ask(2, "specter/context", params))["error"]["code"] == -32803


async def test_feedback_and_stats(client: Client) -> None:
    client.open(URI, "")
    (item,) = await complete(client, 1)
    client.notify("textDocument/didShowCompletion", item=item)
    client.notify("textDocument/didPartiallyAcceptCompletion", item=item, acceptedLength=3)
    command = item["command"]
    reply = await client.ask(
        2, "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
    )
    assert reply["result"] is None
    stats = (await client.ask(3, "specter/stats"))["result"]
    counts = {"shown": 1, "accepted": 1, "partlyAccepted": 1, "rejected": 0, "ignored": 0}
    assert {name: stats[name] for name in counts} == counts
    assert stats["byLanguage"] == {"python": counts}
    assert stats["byDrafter"] == {"model": counts}
    assert (stats["requests"], stats["completions"], stats["liveGenerations"]) == (1, 1, 0)
    assert stats["last"]["accepted"] == 3
    assert "text" not in stats["last"]
    status = client.of("specter/status")[-1]
    assert (status["state"], status["acceptance"], status["tokensPerSecond"]) == ("ready", 0.75, 1000.0)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("nonsense", []), ("specter.accepted", []), ("specter.accepted", [5]), ("specter.accepted", ["a", "b"]),
     ("specter.restartEngine", ["x"])],
)  # fmt: skip
async def test_commands_that_are_none(client: Client, command: str, arguments: list[Any]) -> None:
    params = {"command": command, "arguments": arguments}
    assert (await client.ask(1, "workspace/executeCommand", params))["error"]["code"] == -32602


async def test_clients_share_one_engine_and_nothing_else() -> None:
    host = fake_host()
    first = await Client(host).ready()
    second = await Client(host).ready({"target": "/other"})
    assert len(FakeEngine.made) == 1
    assert "start a server of your own" in second.of("window/showMessage")[0]["message"]
    first.open(URI, "first")
    second.open(URI, "second")
    for number, client in enumerate((first, second)):
        assert await complete(client, number)
    assert [request.suffix for request in FakeEngine.made[0].requests] == ["first", "second"]
    first.connection.lost()
    await first.connection.close()
    assert not FakeEngine.made[0].closed
    assert await complete(second, 9)


async def test_no_code_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client.open(URI, "password = 'hunter2'")
    client.change(URI, 0, 0, "hunter3 ")
    await complete(client, 1)
    client.notify("textDocument/didChange", textDocument={"uri": URI}, contentChanges=[{"text": 5, "x": "hunter4"}])
    client.send(id=2, method="textDocument/inlineCompletion", params={"textDocument": "hunter5"})
    await client.reply(2)
    assert "hunter" not in caplog.text
