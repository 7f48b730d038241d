"""Reads `initialize` and writes its answer, without pygls: its import takes longer (0.6 s) than an editor should wait.

What the server can do stands here once; a test compares it with what pygls would say of the registered features.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsp_server.documents import Encoding

NAME = "specter"
ACCEPTED, REJECTED, RESTART = "specter.accepted", "specter.rejected", "specter.restartEngine"
COMMANDS = (ACCEPTED, REJECTED, RESTART)

_ENCODINGS: dict[str, Encoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}
_INCREMENTAL = 2


class ParamsError(Exception):
    """`initialize` cannot be understood; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Client:
    """What a client said about itself in `initialize`."""

    process_id: int | None
    encoding: Encoding
    folders: tuple[str, ...]  # uris of the workspace folders
    options: Any  # initializationOptions, without the token
    token: str  # what a server that is not on this machine only asks for
    pulls_configuration: bool  # answers workspace/configuration
    registers_configuration: bool  # wants to be asked for workspace/didChangeConfiguration
    shows_progress: bool  # window/workDoneProgress/create
    takes_server_cancelled: bool  # -32802 for a superseded request
    knows_notebooks: bool
    knows_inline_completion: bool  # otherwise it gets its suggestions among its other completions


def read(params: object) -> Client:
    """The client behind the params of `initialize`. A capability of an unexpected type counts as not there."""
    if not isinstance(params, dict):
        raise ParamsError("params: an object is expected")
    capabilities, process_id = params.get("capabilities"), params.get("processId")
    if not isinstance(capabilities, dict):
        raise ParamsError("params.capabilities: an object is expected")
    if not (process_id is None or (isinstance(process_id, int) and not isinstance(process_id, bool))):
        raise ParamsError("params.processId: an integer or null is expected")
    options, token = _without_token(params.get("initializationOptions"))
    return Client(
        process_id=process_id,
        encoding=_encoding(_at(capabilities, "general", "positionEncodings")),
        folders=_folders(params),
        options=options,
        token=token,
        pulls_configuration=_at(capabilities, "workspace", "configuration") is True,
        registers_configuration=_at(capabilities, "workspace", "didChangeConfiguration", "dynamicRegistration") is True,
        shows_progress=_at(capabilities, "window", "workDoneProgress") is True,
        # The name that LSP has for semantic tokens; it has none for inline completion yet.
        takes_server_cancelled=_at(capabilities, "textDocument", "inlineCompletion", "serverCancelSupport") is True,
        knows_notebooks=isinstance(_at(capabilities, "notebookDocument"), dict),
        knows_inline_completion=isinstance(_at(capabilities, "textDocument", "inlineCompletion"), dict),
    )


def answer(client: Client) -> dict[str, Any]:
    """The result of `initialize`."""
    fallback: dict[str, Any] = {} if client.knows_inline_completion else {"completionProvider": {}}
    notebooks = {"notebookDocumentSync": {"notebookSelector": [{"notebook": "*"}]}} if client.knows_notebooks else {}
    return {
        "capabilities": {
            "positionEncoding": client.encoding,
            "textDocumentSync": {"openClose": True, "change": _INCREMENTAL, "save": False},
            "inlineCompletionProvider": {},
            **fallback,
            **notebooks,
            "executeCommandProvider": {"commands": list(COMMANDS)},
            "workspace": {"workspaceFolders": {"supported": True, "changeNotifications": True}, "fileOperations": {}},
        },
        "serverInfo": {"name": NAME, "version": version()},
    }


def version() -> str:
    try:
        return importlib.metadata.version("specter-ls")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "0"


def _without_token(options: object) -> tuple[object, str]:
    """A token is no setting: it must not be complained of or shown."""
    if not isinstance(options, dict):
        return options, ""
    token = options.get("token")
    return {key: value for key, value in options.items() if key != "token"}, token if isinstance(token, str) else ""


def _encoding(offered: object) -> Encoding:
    """The first the client offers that we know; UTF-16 is what every client must know."""
    for name in offered if isinstance(offered, list) else []:
        if isinstance(name, str) and name in _ENCODINGS:
            return _ENCODINGS[name]
    return "utf-16"


def _folders(params: Mapping[str, Any]) -> tuple[str, ...]:
    folders = params.get("workspaceFolders")
    if isinstance(folders, list) and folders:
        uris = (folder.get("uri") for folder in folders if isinstance(folder, dict))
        return tuple(uri for uri in uris if isinstance(uri, str))
    root = params.get("rootUri")
    return (root,) if isinstance(root, str) else ()


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
