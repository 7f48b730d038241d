"""The engine over HTTP, against a server on a real socket."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from calls import REQUEST, complete, until
from hypothesis import given
from hypothesis import strategies as st
from toy_server import QWEN, Reply, Request, ToyServer, tokens

from engine.account import Account
from engine.config import ConfigError, EngineConfig
from engine.interface import EngineError
from engine.remote import RemoteEngine
from engine.remote.characters import CharacterTokenizer, cut_markers, defused, looks_like_a_marker
from engine.remote.metrics import parse_metrics
from engine.request import Chunk, Sampling

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[ToyServer]:
    toy = ToyServer().start()
    yield toy
    toy.close()


async def loaded(url: str, **options: object) -> RemoteEngine:
    engine = RemoteEngine(EngineConfig(server_url=url, **options))  # type: ignore[arg-type]
    await engine.load()
    return engine


@pytest.fixture
async def engine(server: ToyServer) -> AsyncIterator[RemoteEngine]:
    made = await loaded(server.url)
    assert made.trouble == ""
    yield made
    made.close()


async def test_text_and_what_can_be_known_of_it(engine: RemoteEngine, server: ToyServer) -> None:
    completion = await complete(engine)
    assert (completion.text, completion.stop, completion.pair) == (" a + b", "eos", "toy")
    assert completion.tokens == 2  # the server counts the end of the text, too
    json = completion.to_json()
    assert json["prompt_tokens"] == len(tokens(server.completions[-1]["prompt"], QWEN))
    assert json["accepted"] is json["draft_ms"] is json["peak_memory_mb"] is None
    assert 0 < json["ttft_ms"] <= json["total_ms"]


async def test_the_prompt_is_the_familys_with_its_header(engine: RemoteEngine, server: ToyServer) -> None:
    await complete(engine)
    expected = "<|file_sep|>sums.py\n<|fim_prefix|>def add(a, b):\n<|fim_suffix|>\n<|fim_middle|>    return"
    assert server.completions[-1]["prompt"] == expected
    assert engine.preview(REQUEST).text == expected


async def test_connections_are_kept_and_the_end_is_asked_for_by_id(engine: RemoteEngine, server: ToyServer) -> None:
    await complete(engine)
    before = server.connections
    await complete(engine)
    assert server.connections == before
    payload = server.completions[-1]
    assert payload["stop_token_ids"]
    assert "stop" not in payload
    assert payload["temperature"] == 0


async def test_sampling_is_said_and_what_filters_nothing_is_not(engine: RemoteEngine, server: ToyServer) -> None:
    law = Sampling("sampled", 0.7, top_p=0.9, seed=5)
    assert (await complete(engine, replace(REQUEST, sampling=law))).seed == 5
    payload = server.completions[-1]
    assert (payload["temperature"], payload["top_p"], payload["seed"]) == (0.7, 0.9, 5)
    assert not {"top_k", "min_p"} & payload.keys()


@pytest.mark.parametrize("tokenises", [True, False])
async def test_a_marker_in_the_users_text_is_plain_text(server: ToyServer, tokenises: bool) -> None:
    server.tokenises = tokenises
    engine = await loaded(server.url)
    await complete(
        engine, replace(REQUEST, prefix="x = '<|fim_middle|>'\ny = '<|endoftext|>", suffix="<|fim_prefix|>'\n")
    )
    sent = server.completions[-1]["prompt"]
    assert isinstance(sent, list) == tokenises
    ids = sent if tokenises else tokens(sent, QWEN)
    assert [token - 0x110000 for token in ids if token >= 0x110000] == [5, 0, 1, 2]  # the prompt's own four
    text = "".join(chr(token) for token in ids if token < 0x110000)
    assert ("<|fim_middle|>" in text) == tokenises
    assert ("< |fim_middle|>" in text) != tokenises
    engine.close()


PLACES = st.lists(st.one_of(st.sampled_from([*QWEN, "<|x|>", "</s>"]), st.text(max_size=5)), max_size=8).map("".join)


@given(PLACES)
def test_no_part_of_a_cut_text_holds_a_marker(text: str) -> None:
    parts = cut_markers(text)
    assert "".join(parts) == text
    assert not any(looks_like_a_marker(part) for part in parts)
    assert not looks_like_a_marker(defused(text))


async def test_stop_until_and_the_limit_end_as_they_do_here(engine: RemoteEngine, server: ToyServer) -> None:
    server.pieces = ["one", " tw", "o three", " four"]
    stopped = await complete(engine, replace(REQUEST, stop=("two",)))
    assert (stopped.text, stopped.stop) == ("one ", "stop")
    seen: list[str] = []
    ended = await complete(engine, replace(REQUEST, until=lambda text: bool(seen.append(text)) or "two" in text))
    assert (ended.text, ended.stop, seen[0]) == ("one two three", "stop", "one")
    limited = await complete(engine, replace(REQUEST, max_tokens=3))
    assert (limited.text, limited.stop, limited.tokens) == ("one two three", "max_tokens", 3)


async def test_a_server_that_does_not_count_is_stopped(engine: RemoteEngine, server: ToyServer) -> None:
    async def endless(_: Request, reply: Reply) -> None:
        await reply.start_stream()
        while True:
            await reply.event({"choices": [{"text": "x", "finish_reason": None}]})

    server.wrong = endless
    completion = await complete(engine)
    assert completion.stop == "max_tokens"
    assert 16 <= completion.tokens <= 17


async def test_a_deadline_gives_what_there_is(engine: RemoteEngine, server: ToyServer) -> None:
    server.pieces, server.pause_s = ["x"] * 16, 0.2
    completion = await complete(engine, replace(REQUEST, deadline_s=1.0))
    assert completion.stop == "deadline"
    assert 0 < len(completion.text) < 16
    assert set(completion.text) == {"x"}
    await until(lambda: server.running == 0)


@pytest.mark.parametrize("how", ["left", "cancelled"])
async def test_leaving_ends_the_servers_work(engine: RemoteEngine, server: ToyServer, how: str) -> None:
    server.pieces, server.pause_s = ["x"] * 15, 0.2
    arrived = asyncio.Event()

    async def read() -> None:
        async with aclosing(engine.stream(REQUEST)) as chunks:
            async for _ in chunks:
                arrived.set()
                if how == "left":
                    return

    task = asyncio.create_task(read())
    await arrived.wait()
    if how == "cancelled":
        task.cancel()
    await asyncio.wait([task])
    began = time.perf_counter()
    await until(lambda: server.running == 0)
    assert time.perf_counter() - began < 1.5  # of the 2.8 s that it had to go
    assert server.left == 1
    server.pause_s = 0
    assert engine.usage()["liveGenerations"] == 0
    assert 0 < engine.usage()["cancelToIdleMs"]["max"] < 200  # seen to fail for a task that was cancelled
    assert (await complete(engine)).text == "x" * 15  # and nothing of it is in the next one


@pytest.mark.parametrize("how", ["left", "cancelled", "read to its end"])
async def test_a_cancel_is_timed_until_what_it_closed_is_closed(how: str) -> None:
    """Seen to fail with the time taken behind the cancelled step: closing was left out of it."""
    account, arrived = Account(), asyncio.Event()

    async def numbers() -> AsyncGenerator[Chunk, None]:
        try:
            yield Chunk("a b c", 3)
            if how == "cancelled":
                await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    async def read() -> None:
        async with aclosing(account.counting(numbers())) as found:
            async for _ in found:
                arrived.set()
                if how == "left":
                    return

    task = asyncio.create_task(read())
    await arrived.wait()
    if how == "cancelled":
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == (how == "cancelled")
    assert (account.to_json()["engineRequests"], account.to_json()["engineTokens"]) == (1, 3)
    longest = account.to_json()["cancelToIdleMs"]["max"]
    assert longest == 0 if how == "read to its end" else 50 <= longest < 1000


async def test_many_at_once_are_not_crossed(engine: RemoteEngine, server: ToyServer) -> None:
    async def echo(request: Request, reply: Reply) -> None:
        await reply.start_stream()
        for character in request.payload["prompt"].partition("id ")[2].partition(".")[0]:
            await asyncio.sleep(0.001)
            await reply.event({"choices": [{"text": character, "finish_reason": None}]})
        await reply.end_stream()

    server.wrong = echo
    asked = [replace(REQUEST, prefix=f"id {number}.") for number in range(64)]
    answers = await asyncio.gather(*(complete(engine, request) for request in asked))
    assert [answer.text for answer in answers] == [str(number) for number in range(64)]


async def test_a_connection_that_breaks_before_any_text_is_tried_once_more(
    engine: RemoteEngine, server: ToyServer
) -> None:
    broken = 0

    async def breaks(_: Request, reply: Reply) -> None:
        nonlocal broken
        broken += 1
        if broken == 1:
            server.wrong = None
        reply.hang_up()

    server.wrong = breaks
    assert (await complete(engine)).text == " a + b"
    broken = -10
    server.wrong = breaks
    with pytest.raises(EngineError, match=r"the connection to 127\.0\.0\.1:\d+ was lost"):
        await complete(engine)
    assert broken == -8


async def test_a_server_that_closes_its_connections_behind_streams(server: ToyServer) -> None:
    """As llama.cpp's does, which says that it keeps them: the next request may find one closed. Seen to fail without
    sending it once more: the context was assumed, one time of ten the server was called lost."""
    server.closes_behind_streams = True
    server.models = [{"id": "toy", "owned_by": "llamacpp"}]
    server.props = {"default_generation_settings": {"n_ctx": 3000}}
    engine = await loaded(server.url)
    assert (engine.trouble, engine.server and engine.server.context) == ("", 3000)
    for _ in range(3):
        assert (await complete(engine)).text == " a + b"
    engine.close()


async def test_a_key_comes_from_the_environment_or_a_file_and_is_sent_alone(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.key = KEY
    monkeypatch.setenv("SPECTER_SERVER_KEY", KEY)
    assert (await loaded(server.url)).trouble == ""
    monkeypatch.setenv("SPECTER_SERVER_KEY", "wrong")
    (tmp_path / "key").write_text(KEY + "\n")
    config = EngineConfig(server_url=server.url, server_key_file=str(tmp_path / "key"))
    engine = RemoteEngine(config)
    await engine.load()
    assert (await complete(engine)).text == " a + b"
    assert KEY not in repr(config) + repr(vars(engine)) + repr(vars(engine.client))


@pytest.mark.parametrize("content", ["", "two words", "é" * 20, "x" * 9000, "a\nb"])
async def test_a_file_without_a_key_is_said_without_what_is_in_it(
    server: ToyServer, tmp_path: Path, content: str
) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(ConfigError) as error:
        await loaded(server.url, server_key_file=str(tmp_path / "key"))
    assert error.value.key == "server_key_file"
    assert not content or content not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://x",
        "http://",
        "http://:80",
        "http://[::1",
        "http://x:99999",
        "http://a b",
        "http://é",
        f"http://user:{KEY}@host",
        f"http://host/?key={KEY}",
        f"http://u:{KEY}@[::1",
        "http://x/#y",
    ],
)
def test_an_address_that_cannot_work_is_said_with_the_fix(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        EngineConfig(server_url=url)
    assert error.value.key == "server_url"
    assert "http" in str(error.value)
    assert KEY not in str(error.value)


async def _html(_: Request, reply: Reply) -> None:
    await reply.answer(b"<html>sign in</html>", "text/html")


async def _half(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.event({"choices": [{"text": "x", "finish_reason": None}]})
    await reply.raw(b"0\r\n\r\n")


async def _cut(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.event({"choices": [{"text": "x", "finish_reason": None}]})
    reply.hang_up()


async def _no_utf8(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.chunk(b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n')


async def _no_json(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.chunk(b"data: {oops\n\n")


async def _deep(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.chunk(b"data: " + b"[" * 200_000 + b"\n\n")


async def _list(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.event([1, 2])


async def _error(request: Request, reply: Reply) -> None:
    await reply.start_stream()
    await reply.event({"error": {"message": f"{request.headers} {request.payload}"}})


async def _huge_line(_: Request, reply: Reply) -> None:
    await reply.start_stream()
    for _ in range(64):
        await reply.chunk(b"data: " + b"x" * 100_000)


async def _elsewhere(_: Request, reply: Reply) -> None:
    await reply.answer(b"", status="307 Temporary Redirect", more="Location: http://evil.example/v1/completions\r\n")


async def _failing(request: Request, reply: Reply) -> None:
    await reply.json({"error": {"message": f"{request.headers} {request.payload}"}}, "500 Internal Server Error")


async def _overloaded(_: Request, reply: Reply) -> None:
    await reply.json({}, "503 Service Unavailable")


async def _refuses(request: Request, reply: Reply) -> None:
    await reply.json({"error": {"message": f"no {request.payload}"}}, "400 Bad Request")


async def _nothing_http(_: Request, reply: Reply) -> None:
    await reply.raw(b"220 mail.example ESMTP\r\n\r\n")
    reply.hang_up()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_html, r"a web page instead of JSON"),
        (_half, r"stopped in the middle"),
        (_cut, r"connection to .* was lost"),
        (_no_utf8, r"not UTF-8"),
        (_no_json, r"something else than JSON"),
        (_deep, r"something else than (JSON|completions)"),
        (_list, r"something else than completions"),
        (_error, r"gave up in the middle"),
        (_huge_line, r"a line of over 1 MB"),
        (_elsewhere, r"redirects to evil\.example, which is not followed"),
        (_failing, r"failed \(500\)"),
        (_overloaded, r"overloaded or starting \(503\)"),
        (_refuses, r"refuses the request \(400\)"),
        (_nothing_http, r"does not speak HTTP|was lost"),
    ],
)
async def test_whatever_a_server_does_is_one_line_without_the_key_or_the_text(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: object, said: str
) -> None:
    monkeypatch.setenv("SPECTER_SERVER_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    engine = await loaded(server.url)
    server.wrong = wrong  # type: ignore[assignment]
    with pytest.raises(EngineError, match=said) as error:
        await complete(engine, replace(REQUEST, prefix="the_users_secret = "))
    shown = str(error.value) + caplog.text
    assert "\n" not in str(error.value)
    assert KEY not in shown
    assert "the_users_secret" not in shown
    assert len(str(error.value)) < 200
    server.wrong = None
    await until(lambda: not engine.trouble)  # by itself, if it was down
    assert (await complete(engine)).text == " a + b"
    engine.close()


async def test_a_stream_that_falls_silent_is_given_up(server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.remote.client.QUIET_S", 0.3)
    engine = await loaded(server.url)

    async def silent(request: Request, reply: Reply) -> None:
        await reply.start_stream()
        await request.gone.wait()

    server.wrong = silent
    with pytest.raises(EngineError, match="has sent nothing for"):
        await complete(engine)
    engine.close()


async def _none(toy: ToyServer) -> dict[str, object]:
    toy.stop()
    return {}


async def _key(toy: ToyServer) -> dict[str, object]:
    toy.key = KEY
    return {}


async def _model(toy: ToyServer) -> dict[str, object]:
    return {"server_model": "gpt-9"}


async def _several(toy: ToyServer) -> dict[str, object]:
    toy.models = [*toy.models, {"id": "second"}]
    return {}


async def _no_fim(toy: ToyServer) -> dict[str, object]:
    toy.markers = ()
    return {}


async def _no_models(toy: ToyServer) -> dict[str, object]:
    toy.models = []
    return {}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_none, r"cannot be reached \(.*refused.*\); start the server, or correct server\.url"),
        (_key, r"wants a key \(401\); set SPECTER_SERVER_KEY or server\.keyFile"),
        (_model, r"has no model 'gpt-9'; set server\.model to one of toy"),
        (_several, r"several models; set server\.model to one of toy, second"),
        (_no_fim, r"no fill-in-the-middle tokens .* serve a code model"),
        (_no_models, r"lists no models"),
    ],
)
async def test_what_is_wrong_from_the_start_is_trouble_and_no_exception(
    server: ToyServer, make: object, said: str
) -> None:
    options = await make(server)  # type: ignore[operator]
    engine = await loaded(server.url, **options)
    assert re.search(said, engine.trouble), engine.trouble
    assert not engine.ready
    with pytest.raises(EngineError):
        await complete(engine)
    engine.close()


async def test_a_wrong_key_is_said_without_it(server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "another"
    monkeypatch.setenv("SPECTER_SERVER_KEY", KEY)
    engine = await loaded(server.url)
    assert "refuses the key (401)" in engine.trouble
    assert KEY not in engine.trouble
    engine.close()


async def test_it_comes_back_without_a_restart(
    engine: RemoteEngine, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.remote.service._FIRST_PAUSE_S", 0.05)
    told: list[str] = []
    engine.watch(lambda: told.append(engine.trouble))
    server.stop()
    with pytest.raises(EngineError, match="cannot be reached"):
        await complete(engine)
    await until(lambda: told)
    await asyncio.sleep(0.3)
    server.start(server.port)
    await until(lambda: not engine.trouble)
    assert told[-1] == ""
    assert "cannot be reached" in told[0]
    assert (await complete(engine)).text == " a + b"


async def test_a_dead_server_is_asked_ever_more_rarely(server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.remote.service._FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("engine.remote.service._LONGEST_PAUSE_S", 0.4)
    server.key = KEY  # it answers, and is of no use
    engine = await loaded(server.url)
    await asyncio.sleep(1.5)
    assert len(server.requests) <= 9
    await until(lambda: len(server.requests) >= 3)
    engine.close()
    await asyncio.sleep(0.1)
    asked = len(server.requests)
    await asyncio.sleep(0.8)
    assert len(server.requests) == asked


async def test_a_server_that_takes_openais_fields_only(server: ToyServer) -> None:
    server.strict, server.tokenises = True, False
    engine = await loaded(server.url)
    server.pieces = ["x", " <|file_", "sep|>", "other file"]
    completion = await complete(engine)
    assert (completion.text, completion.stop) == ("x ", "eos")
    assert "<|file_sep|>" in server.completions[-1]["stop"]
    engine.close()


async def test_ids_to_stop_at_are_not_relied_on_where_ids_are_not_shown(server: ToyServer) -> None:
    server.shows_ids = False
    engine = await loaded(server.url)
    await complete(engine)
    assert "<|fim_middle|>" in server.completions[-1]["stop"]
    assert server.completions[-1]["skip_special_tokens"] is False
    engine.close()


async def test_a_server_without_markers_lays_out_suffixes_itself(server: ToyServer) -> None:
    server.markers, server.takes_suffix = (), True
    engine = await loaded(server.url)
    assert (await complete(engine)).text == " a + b"
    payload = server.completions[-1]
    assert (payload["prompt"], payload["suffix"]) == (REQUEST.prefix, REQUEST.suffix)
    engine.close()


async def test_a_server_that_does_not_stream_answers_in_one_piece(engine: RemoteEngine, server: ToyServer) -> None:
    async def whole(_: Request, reply: Reply) -> None:
        await reply.json(
            {"choices": [{"text": "all of it", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
        )

    server.wrong = whole
    completion = await complete(engine)
    assert (completion.text, completion.tokens, completion.stop) == ("all of it", 3, "eos")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    made, secret = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=toy"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(secret), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made, secret


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_certificate_counts(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    toy = ToyServer(context).start()
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    engine = await loaded(toy.url)
    if trusted:
        assert engine.trouble == ""
        assert (await complete(engine)).text == " a + b"
    else:
        assert "the certificate of 127.0.0.1" in engine.trouble
        assert "SSL_CERT_FILE" in engine.trouble
    engine.close()
    await asyncio.sleep(0.05)
    toy.close()


def test_what_servers_tell_of_themselves() -> None:
    text = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 2.0
vllm:num_requests_running{engine="1",model_name="a b"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 3e1
nonsense {{{
"""
    metrics = parse_metrics(text)
    assert metrics is not None
    assert (metrics.running, metrics.waiting, metrics.drafted, metrics.accepted) == (3, 0, 40, 30)
    assert metrics.speculates
    assert parse_metrics("<html></html>") is None
    llama = parse_metrics("llamacpp:requests_processing 1\n")
    assert llama is not None
    assert llama.speculates is None


@given(
    st.lists(st.one_of(st.text(st.characters(), max_size=4), st.sampled_from(QWEN), st.just("\ud800\x11\U0010ffff")))
)
def test_a_prompt_of_characters_is_cut_at_its_markers(parts: list[str]) -> None:
    """As one by one. Seen to fail: a marker's code found across two characters."""
    tokenizer = CharacterTokenizer(QWEN)
    ids = [token for part in parts for token in ([tokenizer.markers[part]] if part in QWEN else map(ord, part))]
    expected = list[tuple[bool, str]]()
    for part in filter(None, parts):
        if part not in QWEN and expected and not expected[-1][0]:
            expected[-1] = (False, expected[-1][1] + part)
        else:
            expected.append((part in QWEN, part))
    assert list(tokenizer.pieces(ids)) == expected
    assert tokenizer.decode(ids, skip_special_tokens=False) == "".join(parts)
    text = "".join(part for part in parts if part not in QWEN)
    assert tokenizer.encode(text, add_special_tokens=False) == list(map(ord, text))
