"""What a server is and can do, found out by asking: its model, its context, its markers, its further fields."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from engine.config import ConfigError, EngineConfig
from engine.prompt import FAMILIES, Family
from engine.remote.client import Client
from engine.remote.errors import RemoteError
from engine.remote.layout import IdsLayout, Layout, SuffixLayout, TextLayout, Tokenise
from engine.remote.metrics import Metrics, read_metrics
from engine.request import CompletionRequest
from engine.sources import Report

ASSUMED_CONTEXT = 2048  # tokens, of servers that say nothing of it
_MOST_PLAIN_STOPS = 4  # what OpenAI's completions take, and so some servers
_SHOWN = 8  # models in a message
_CODE = "def add(a, b):\n    return"


@dataclass(frozen=True, slots=True)
class Server:
    """One server as it was found."""

    model: str
    kind: str  # who it says it is: vllm, sglang, llamacpp; "" if it does not
    context: int  # tokens of prompt and completion together
    context_reported: bool
    layout: Layout
    fields: Mapping[str, Any] = field(default_factory=dict)  # beside the usual ones, those it takes
    scan: tuple[str, ...] = ()  # markers to look for in its text, since it may not stop at them
    streams: bool = True
    metrics: Metrics | None = None
    first_event_ms: float = 0.0  # of a short prompt


async def probe(client: Client, config: EngineConfig, report: Report = lambda *_: None) -> Server:
    """Asks a dozen small things. Raises RemoteError if completions are not to be had, ConfigError for a key or a
    tokenizer that cannot be read."""
    client.refresh()
    report(0.0, f"asking {client.host}")
    entry = await _model(client, config.server_model)
    model = str(entry["id"])
    asking = _Asking(client, model)
    await asking.find_tokeniser()
    report(0.3, f"asking {client.host} for its markers")
    layout = await _layout(asking, config)
    report(0.7, f"trying {model}")
    trial = await _trial(asking, layout)
    context = _context(entry) or await _props_context(client)
    report(1.0, "ready")
    return Server(
        model=model,
        kind=_kind(entry),
        context=context or ASSUMED_CONTEXT,
        context_reported=bool(context),
        layout=layout,
        fields=trial.fields,
        scan=() if trial.stops_by_id else layout.ends,
        streams=trial.streams,
        metrics=await read_metrics(client),
        first_event_ms=trial.first_event_ms,
    )


async def _model(client: Client, wanted: str | None) -> Mapping[str, Any]:
    """The entry of the model to use. Raises RemoteError if it is not there, or if there is a choice to make."""
    listed = (await client.get("/models")).get("data")
    entries = (
        [entry for entry in listed if isinstance(entry, dict) and entry.get("id")] if isinstance(listed, list) else []
    )
    names = [str(entry["id"]) for entry in entries]
    if wanted is None and len(entries) == 1:
        return entries[0]
    for entry in entries:
        if entry["id"] == wanted:
            return entry
    have = ", ".join(name[:80] for name in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    if not names:
        raise RemoteError(f"{client.host} lists no models; is server.url the address of an OpenAI-compatible API?")
    if wanted is None:
        raise RemoteError(f"{client.host} serves several models; set server.model to one of {have}")
    raise RemoteError(f"{client.host} has no model {wanted[:80]!r}; set server.model to one of {have}, or leave it out")


def _kind(entry: Mapping[str, Any]) -> str:
    owner = str(entry.get("owned_by", ""))
    return owner if owner in ("vllm", "sglang", "llamacpp") else ""


def _context(entry: Mapping[str, Any]) -> int:
    value = entry.get("max_model_len")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 64 else 0


async def _props_context(client: Client) -> int:
    """llama.cpp's way to say it."""
    with suppress(RemoteError):
        props = await client.get("/props", api=False)
        settings = props.get("default_generation_settings")
        value = settings.get("n_ctx") if isinstance(settings, dict) else None
        if isinstance(value, int) and value >= 64:
            return value
    return 0


class _Asking:
    """Small questions to one model."""

    def __init__(self, client: Client, model: str) -> None:
        self.client = client
        self.model = model
        self.tokenise: Tokenise | None = None
        self._known: dict[str, bool] = {}
        self._plain_tokens = -1  # of the prompt "a"

    async def find_tokeniser(self) -> None:
        """The server's own tokenizer, where it lets itself be asked: vLLM's and SGLang's form, llama.cpp's form."""
        forms: list[Callable[[str], dict[str, Any]]] = [
            lambda text: {"model": self.model, "prompt": text, "add_special_tokens": False},
            lambda text: {"content": text, "add_special": False, "parse_special": True},
        ]
        for form in forms:
            tokenise = self._tokeniser(form)
            with suppress(RemoteError):
                if len(await tokenise("a")) == 1 and len(await tokenise("a" * 3 + "\n" + "b")) > 1:
                    self.tokenise = tokenise
                    return

    def _tokeniser(self, form: Callable[[str], dict[str, Any]]) -> Tokenise:
        async def tokenise(text: str) -> list[int]:
            answer = (await self.client.post("/tokenize", form(text), api=False)).get("tokens")
            if not isinstance(answer, list) or not all(isinstance(token, int) for token in answer):
                raise RemoteError(f"{self.client.host} does not tokenise as it should", down=False)
            return answer

        return tokenise

    async def is_marker(self, name: str) -> bool:
        """Whether the model has a token of that name, which text turns into."""
        if name not in self._known:
            self._known[name] = await self._is_marker(name.replace("▁", " "))
        return self._known[name]

    async def _is_marker(self, text: str) -> bool:
        if self.tokenise is not None:
            return len(await self.tokenise(text)) == 1
        if self._plain_tokens < 0:
            self._plain_tokens = await self.prompt_tokens({"prompt": "a"})
        return await self.prompt_tokens({"prompt": f"a{text}"}) == self._plain_tokens + 1

    async def prompt_tokens(self, fields: Mapping[str, Any]) -> int:
        """How many the server counts in a prompt; 0 if it does not say."""
        answer = await self.client.post("/completions", {**self.usual(1), **fields})
        usage = answer.get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return count if isinstance(count, int) else 0

    def usual(self, max_tokens: int) -> dict[str, Any]:
        return {"model": self.model, "max_tokens": max_tokens, "temperature": 0.0}


async def _layout(asking: _Asking, config: EngineConfig) -> Layout:
    if config.server_tokenizer is not None:
        return await _ids_layout(asking, config.server_tokenizer)
    for family in FAMILIES:
        if await _has(asking, family):
            further = (*family.header.markers, *family.ends)
            markers = {name for name in family.markers if name not in further}
            markers |= {name for name in further if await asking.is_marker(name)}
            return TextLayout(markers, asking.tokenise if await _takes_ids(asking) else None)
    if await _takes_suffix(asking):
        return SuffixLayout()
    raise RemoteError(
        f"{asking.model[:80]} has no fill-in-the-middle tokens that Specter knows, and {asking.client.host} does not "
        "take `suffix`; serve a code model such as Qwen2.5-Coder"
    )


async def _has(asking: _Asking, family: Family) -> bool:
    for name in (family.prefix, family.suffix, family.middle, *family.tells):
        if name and not await asking.is_marker(name):
            return False
    return True


async def _takes_ids(asking: _Asking) -> bool:
    if asking.tokenise is None:
        return False
    with suppress(RemoteError):
        ids = await asking.tokenise(_CODE)
        return await asking.prompt_tokens({"prompt": ids}) in (len(ids), len(ids) + 1)
    return False


async def _takes_suffix(asking: _Asking) -> bool:
    """Whether it counts: some servers take the parameter and do nothing with it."""
    with suppress(RemoteError):
        without = await asking.prompt_tokens({"prompt": _CODE})
        return await asking.prompt_tokens({"prompt": _CODE, "suffix": " + c\n\n\nprint(add(1, 2))\n"}) > without + 4
    return False


async def _ids_layout(asking: _Asking, source: str) -> IdsLayout:
    """With the model's tokenizer from this machine. Raises ConfigError if it is none, or another model's."""
    from engine.tokenizers import load_tokenizer  # transformers

    tokenizer = await asyncio.to_thread(load_tokenizer, "server_tokenizer", source)
    ids = tokenizer.encode(_CODE, add_special_tokens=False)
    theirs = ids if asking.tokenise is None else await asking.tokenise(_CODE)
    if ids != theirs or await asking.prompt_tokens({"prompt": ids}) not in (0, len(ids), len(ids) + 1):
        fix = "give the tokenizer of the model that the server has, or leave it out"
        raise ConfigError("server_tokenizer", f"{source[:200]} is not what {asking.model[:80]} reads; {fix}")
    try:
        return IdsLayout(tokenizer)
    except LookupError:
        fix = "serve a code model trained for it"
        raise ConfigError("server_tokenizer", f"{source[:200]} has no fill-in-the-middle tokens; {fix}") from None


@dataclass(frozen=True, slots=True)
class _Trial:
    fields: dict[str, Any]
    stops_by_id: bool
    streams: bool
    first_event_ms: float


async def _trial(asking: _Asking, layout: Layout) -> _Trial:
    """The most of further fields that the server takes, tried on a real completion.

    Ids of markers to stop at come first. As strings they make vLLM hold back as many characters as the longest has,
    for it must not show half of one, and the markers must be shown to be found.
    """
    ids = await _end_ids(asking, layout)
    counted = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    strings = list(layout.ends)
    attempts: list[dict[str, Any]] = []
    if ids:
        attempts.append({**counted, "stop_token_ids": ids, "return_token_ids": True})
    attempts.append({**counted, "stop": strings, "skip_special_tokens": False})
    attempts.append({"stream_options": {"include_usage": True}, "stop": strings})
    attempts.append({"stop": strings[:_MOST_PLAIN_STOPS]})
    refused: RemoteError | None = None
    for attempt in attempts:
        fields = {name: value for name, value in attempt.items() if value != []}
        try:
            shown_ids, streams, ms = await _try(asking, layout, fields)
        except RemoteError as error:
            if error.down or error.lost:
                raise
            refused = error
            continue
        if "return_token_ids" in fields and not shown_ids:
            continue  # it ignores what it does not know, and so perhaps the ids to stop at
        return _Trial(fields, "stop_token_ids" in fields, streams, ms)
    assert refused is not None
    raise RemoteError(f"{refused!s}: even a plain completion of {asking.model[:80]}")


async def _try(asking: _Asking, layout: Layout, fields: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """(whether token ids came, whether there was more than one event, milliseconds to the first)"""
    prompt = layout.build(CompletionRequest(_CODE, "\n", max_tokens=2), 64)
    payload = {**asking.usual(2), **(await layout.fields(prompt)), **fields, "stream": True}
    began, first_ms, count, ids, texts = time.perf_counter(), math.nan, 0, False, 0
    async with aclosing(asking.client.completion(payload)) as events:
        async for event in events:
            first_ms = 1000 * (time.perf_counter() - began) if count == 0 else first_ms
            count += 1
            choices = event.get("choices")
            if not isinstance(choices, list):
                raise RemoteError(f"{asking.client.host} answers with something else than completions")
            texts += len(choices)
            ids = ids or any(isinstance(choice, dict) and bool(choice.get("token_ids")) for choice in choices)
    if not texts:
        raise RemoteError(f"{asking.client.host} answers without completions")
    return ids, count > 1, first_ms


async def _end_ids(asking: _Asking, layout: Layout) -> list[int]:
    if isinstance(layout, IdsLayout):
        return layout.end_ids
    if asking.tokenise is None:
        return []
    return [token for name in layout.ends for token in await asking.tokenise(name.replace("▁", " "))]
