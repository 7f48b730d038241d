"""HTTP to one server: its addresses, the key, and every failure as a RemoteError."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from engine.config import EngineConfig
from engine.remote.errors import CONNECT_S, QUIET_S, RemoteError, no_json, of_redirect, of_status, of_transport
from engine.remote.events import events, parsed
from engine.remote.key import Key, read_key

_ANSWER_S = 10.0  # for a whole answer that is no stream
_END_S = 0.25  # for the end of a stream that said it was done
_LARGEST_ANSWER = 4 << 20  # bytes
# Each live completion holds a connection, and one that was left is closed: how the server learns of it.
_LIMITS = httpx2.Limits(max_connections=512, max_keepalive_connections=64, keepalive_expiry=60.0)

# Before an answer. Servers close a connection when they like, llama.cpp's behind each stream that it said it would keep
# it after: a request that was on its way then was not read. None of ours changes anything, so it is sent once more.
_CLOSED_BY_SERVER = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


class Client:
    """One server. The key is read anew by `refresh`, so that it can be changed while Specter runs."""

    def __init__(self, config: EngineConfig) -> None:
        assert config.server_url is not None
        base = config.server_url.rstrip("/")
        self._root = base.removesuffix("/v1")
        self._api = f"{self._root}/v1"
        self._key_file = config.server_key_file
        self._key: Key | None = None
        self.host = urlsplit(base).netloc
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(QUIET_S, connect=CONNECT_S),
            limits=_LIMITS,
            verify=ssl.create_default_context(),  # the system's authorities, or those that SSL_CERT_FILE names
            follow_redirects=False,  # the prompt is the user's code, and the key is for this server alone
            trust_env=not _is_loopback(urlsplit(base).hostname or ""),  # no proxy on the way to this machine itself
            headers={"User-Agent": "specter", "Accept-Encoding": "identity"},
        )

    @property
    def encrypted(self) -> bool:
        return self._root.startswith("https:")

    def refresh(self) -> None:
        """Reads the key again. Raises ConfigError."""
        self._key = read_key(self._key_file)

    async def get(self, path: str, *, api: bool = True) -> dict[str, Any]:
        """The JSON object there. Raises RemoteError."""
        return parsed(await self._whole("GET", path, api))

    async def get_text(self, path: str) -> str:
        """What stands there, beside the API. Raises RemoteError."""
        return (await self._whole("GET", path, api=False)).decode("utf-8", errors="replace")

    async def post(self, path: str, payload: Mapping[str, Any], *, api: bool = True) -> dict[str, Any]:
        """The JSON object that answers. Raises RemoteError."""
        return parsed(await self._whole("POST", path, api, payload))

    async def completion(self, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed completion; a server that does not stream sends one. Leaving it closes the
        connection, which ends the server's work. Raises RemoteError."""
        async with self._response("POST", "/completions", True, payload) as response:
            kind = response.headers.get("content-type", "")
            if "event-stream" not in kind:
                yield parsed(await self._body(response, kind))
                return
            chunks = response.aiter_raw()
            async with aclosing(events(chunks)) as found:  # type: ignore[type-var]
                async for event in found:
                    yield event
            with suppress(TimeoutError):  # only a connection that was read to its end serves the next completion
                async with asyncio.timeout(_END_S):
                    async for _ in chunks:
                        pass

    def raw(self, payload: Mapping[str, Any]) -> AbstractAsyncContextManager[httpx2.Response]:
        """The response of a streamed completion, unread: what a benchmark compares with."""
        return self._response("POST", "/completions", True, payload)

    async def close(self) -> None:
        await self._http.aclose()

    async def _whole(self, method: str, path: str, api: bool, payload: Mapping[str, Any] | None = None) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_S), self._response(method, path, api, payload) as response:
                return await self._body(response, response.headers.get("content-type", ""))
        except TimeoutError:
            raise RemoteError(f"{self.host} does not answer within {_ANSWER_S:.0f} s") from None

    async def _body(self, response: httpx2.Response, kind: str) -> bytes:
        if "html" in kind:
            raise no_json(kind, self.host)
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _LARGEST_ANSWER:
                raise RemoteError(f"{self.host} sent an answer of over {_LARGEST_ANSWER >> 20} MB")
        return bytes(body)

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, api: bool, payload: Mapping[str, Any] | None
    ) -> AsyncIterator[httpx2.Response]:
        """A response that is a success, open for reading."""
        content = None if payload is None else json.dumps(payload).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        if self._key is not None:
            headers |= self._key.header
        url = f"{self._api if api else self._root}{path}"
        try:
            async with AsyncExitStack() as open_:
                response = await self._opened(
                    open_, lambda: self._http.stream(method, url, content=content, headers=headers)
                )
                if response.status_code in range(300, 400):
                    raise of_redirect(response.headers.get("location"), self.host)
                if response.status_code != 200:
                    model = str(payload.get("model", "")) if payload else ""
                    raise of_status(response.status_code, self.host, self._key is not None, model)
                yield response
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ssl.SSLError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise  # of the caller's clock
            raise of_transport(error, self.host) from None

    async def _opened(
        self, open_: AsyncExitStack, send: Callable[[], AbstractAsyncContextManager[httpx2.Response]]
    ) -> httpx2.Response:
        """The response's head, from another connection if the first was closed meanwhile."""
        try:
            return await open_.enter_async_context(send())
        except _CLOSED_BY_SERVER:
            try:
                return await open_.enter_async_context(send())
            except _CLOSED_BY_SERVER as error:
                failure = of_transport(error, self.host)
                failure.lost = False  # or others would try it once more
                raise failure from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
