"""The registered features: convert, call the session, convert back. pygls' server object is made here.

Imported after `initialize` was answered, see handshake.py. Handlers run at once when their message arrives, so they
see the document as it was then; what takes time is in the task that they return.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server import fallback, handshake, jsonrpc, protocol
from lsp_server.answer import SupersededError
from lsp_server.documents import Change, Position
from lsp_server.engine_host import EngineHost
from lsp_server.handshake import Client
from lsp_server.jsonrpc import Message, RpcError
from lsp_server.placement import Selected
from lsp_server.session import Asker, RefusedError, Session, Suggestion
from lsp_server.transport import Output
from lsp_server.wire import Wire


class Server(LanguageServer):
    """One client's end of the connection (connection.Session)."""

    protocol: protocol.Protocol

    def __init__(self, client: Client, host: EngineHost, output: Output) -> None:
        super().__init__(
            handshake.NAME,
            handshake.version(),
            protocol_cls=protocol.Protocol,
            converter_factory=protocol.strict_converter,
        )
        self.protocol.attach(output, lambda error: _fault(error, client))
        self.output = output
        self.session = Session(client, host, Wire(self.protocol.notify, self.protocol.ask))
        _register(self)

    def handle(self, message: Message) -> None:
        self.protocol.handle(message)

    def cancel_requests(self) -> None:
        self.protocol.cancel_requests()

    async def close(self) -> None:
        self.session.close()
        await self.protocol.settled()


def _register(server: Server) -> None:
    _register_lifecycle(server)
    _register_documents(server)
    _register_notebooks(server)
    _register_completion(server)
    _register_feedback(server)
    _register_commands(server)


def _register_lifecycle(server: Server) -> None:
    session = server.session

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        session.start()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configuration(params: types.DidChangeConfigurationParams) -> None:
        session.configuration.refresh(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        session.folders_changed(
            (folder.uri for folder in params.event.added), (folder.uri for folder in params.event.removed)
        )

    @server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def progress_cancelled(params: types.WorkDoneProgressCancelParams) -> None:
        session.offer.cancel(params.token)


def _register_documents(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        session.opened(document.uri, document.language_id, document.version, document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        session.changed(document.uri, document.version, [_change(change) for change in params.content_changes])

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        session.closed(params.text_document.uri)


def _register_notebooks(server: Server) -> None:
    """A cell's text is a document; what is said of the notebook is which cells it has."""
    session = server.session

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenNotebookDocumentParams) -> None:
        session.notebooks.open(params.notebook_document.uri, [cell.document for cell in params.notebook_document.cells])
        _open_all(session, params.cell_text_documents)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeNotebookDocumentParams) -> None:
        if params.change.cells is not None:
            _cells_changed(session, params.notebook_document.uri, params.change.cells)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseNotebookDocumentParams) -> None:
        cells = session.notebooks.close(params.notebook_document.uri)
        for uri in {*cells, *(document.uri for document in params.cell_text_documents)}:
            session.closed(uri)


def _cells_changed(session: Session, notebook: str, cells: types.NotebookDocumentCellChanges) -> None:
    if cells.structure is not None:
        array = cells.structure.array
        uris = [cell.document for cell in array.cells or ()]
        session.notebooks.splice(notebook, array.start, array.delete_count, uris)
        _open_all(session, cells.structure.did_open or ())
        for closed in cells.structure.did_close or ():
            session.closed(closed.uri)
    for content in cells.text_content or ():
        document = content.document
        session.changed(document.uri, document.version, [_change(change) for change in content.changes])


def _open_all(session: Session, documents: Iterable[types.TextDocumentItem]) -> None:
    for document in documents:
        session.opened(document.uri, document.language_id, document.version, document.text)


def _register_completion(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    def complete(params: protocol.InlineCompletionParams) -> Any:
        asker = Asker(
            says_automatic=params.context.trigger_kind == types.InlineCompletionTriggerKind.Automatic,
            grew=_streamer(server, params.partial_result_token),
            convert=_items,
        )
        selected = _selected(params.context.selected_completion_info)
        return session.complete(params.text_document.uri, _position(params.position), selected, asker)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions())
    def complete_in_list(params: types.CompletionParams) -> Any:
        uri, position = params.text_document.uri, _position(params.position)
        document = session.documents.get(uri)
        word, start = ("", position) if document is None else document.word_before(position)
        asker = Asker(
            says_automatic=True,
            grew=lambda _: None,
            convert=lambda suggestions: fallback.completion_list(suggestions, word, start),
        )
        return session.complete(uri, position, None, asker)

    @server.feature(protocol.STATS)
    def stats(params: protocol.StatsParams) -> dict[str, Any]:
        return session.stats()

    @server.feature(protocol.CONTEXT)
    def context(params: protocol.ContextParams) -> dict[str, Any]:
        return session.context(params.text_document.uri, _position(params.position))


def _register_feedback(server: Server) -> None:
    feedback = server.session.feedback

    @server.feature(protocol.DID_SHOW)
    def shown(params: protocol.ShownParams) -> None:
        feedback.shown(_suggestion_id(params.item.command))

    @server.feature(protocol.DID_PARTLY_ACCEPT)
    def partly_accepted(params: protocol.PartlyAcceptedParams) -> None:
        feedback.partly_accepted(_suggestion_id(params.item.command))


def _register_commands(server: Server) -> None:
    session = server.session

    @server.command(handshake.ACCEPTED)
    def accepted(suggestion: str) -> None:
        session.feedback.accepted(suggestion)

    @server.command(handshake.REJECTED)
    def rejected(suggestion: str) -> None:
        session.feedback.rejected(suggestion)

    @server.command(handshake.RESTART)
    def restart() -> None:
        session.restart_engine()

    @server.feature(types.WORKSPACE_EXECUTE_COMMAND)
    def execute(params: types.ExecuteCommandParams) -> None:
        command = server.protocol.fm.commands.get(params.command)
        if command is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"there is no command {params.command}")
        arguments = list(params.arguments or [])
        wanted = 0 if params.command == handshake.RESTART else 1
        if len(arguments) != wanted or not all(isinstance(argument, str) for argument in arguments):
            takes = "one argument, the id of a suggestion" if wanted else "no arguments"
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{params.command} takes {takes}")
        command(*arguments)


def _fault(error: BaseException, client: Client) -> BaseException:
    """What the protocol says of our own exceptions; others stay what they are."""
    if isinstance(error, SupersededError):
        code = jsonrpc.SERVER_CANCELLED if client.takes_server_cancelled else jsonrpc.REQUEST_CANCELLED
        return RpcError(code, "superseded by a newer request")
    if isinstance(error, RefusedError):
        return RpcError(jsonrpc.REQUEST_FAILED, str(error))
    return error


def _streamer(server: Server, token: types.ProgressToken | None) -> Callable[[Suggestion], None]:
    """Sends what a suggestion has grown to, if the client asked for it and has taken what was sent before: each value
    replaces the last, so a client that is slow misses nothing by missing some."""
    numbers = itertools.count(1)

    def grew(suggestion: Suggestion) -> None:
        if token is not None and server.output.idle:
            items = server.protocol.unstructure(_items([suggestion]).items)
            value = {"items": items, "sequence": next(numbers)}
            server.protocol.notify(types.PROGRESS, {"token": token, "value": value})

    return grew


def _items(suggestions: Sequence[Suggestion]) -> types.InlineCompletionList:
    """Never null, which Neovim takes for "leave the old text on screen"; always with a range, without which VS Code
    replaces the rest of the line."""
    return types.InlineCompletionList(
        items=[
            types.InlineCompletionItem(
                insert_text=suggestion.text,
                range=types.Range(types.Position(*suggestion.start), types.Position(*suggestion.end)),
                command=types.Command("Specter: accepted", handshake.ACCEPTED, arguments=[suggestion.id]),
            )
            for suggestion in suggestions
        ]
    )


def _position(position: types.Position) -> Position:
    return Position(position.line, position.character)


def _selected(info: types.SelectedCompletionInfo | None) -> Selected | None:
    if info is None:
        return None
    return Selected(_position(info.range.start), _position(info.range.end), info.text)


def _change(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangePartial):
        return Change(_position(change.range.start), _position(change.range.end), change.text)
    return Change(None, None, change.text)


def _suggestion_id(command: types.Command | None) -> str:
    """The id in an item that came back; "" if it is none of ours."""
    arguments = (command and command.arguments) or [""]
    return arguments[0] if isinstance(arguments[0], str) else ""
