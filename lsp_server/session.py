"""What the server does for one client, in plain values: its documents, its suggestions and its questions.

Knows the meaning of the protocol's messages but not their form: server.py converts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from lsp_server import context, exclusions
from lsp_server.answer import Listener, Offer, Outcome
from lsp_server.completer import Completer
from lsp_server.configuration import Configuration
from lsp_server.context.indexing import Indexer
from lsp_server.context.live import MOST, Live, Wanted
from lsp_server.context.sources import Piece
from lsp_server.context.workspace import Workspace, resolved
from lsp_server.documents import Change, Document, Documents, Position, indentation, is_uri
from lsp_server.engine_host import EngineHost, Health
from lsp_server.feedback import Feedback
from lsp_server.generation import Job
from lsp_server.handshake import Client
from lsp_server.notebooks import Notebooks
from lsp_server.offer import PairOffer
from lsp_server.pace import Pace
from lsp_server.placement import Place, Selected, place
from lsp_server.settings import Settings
from lsp_server.status import Status
from lsp_server.wire import Wire

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.request import CompletionRequest


class RefusedError(Exception):
    """The question cannot be answered now; the message says why."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text to offer in place of start..end (wire positions); its id comes back when it is accepted.

    Its line ends are `\\n`, whatever the document's are: VS Code makes them the document's, and Neovim, which keeps
    lines without line ends, would keep a `\\r` within them.
    """

    id: str
    text: str
    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for suggestions: what the first grows to is told to `grew`, and `convert` makes the reply."""

    says_automatic: bool  # asked by the editor while its user types, not by a key; if it numbers the kinds as we do
    grew: Callable[[Suggestion], None]
    convert: Callable[[Sequence[Suggestion]], Any]


class Session:
    """One client's end of the server."""

    def __init__(self, client: Client, host: EngineHost, wire: Wire) -> None:
        self.documents = Documents(client.encoding)
        self.feedback = Feedback()
        self.configuration = Configuration(client, host, wire, self._configured)
        self.offer = PairOffer(host, wire, client.shows_progress)
        self._status = Status(host, wire, client.shows_progress)
        self._host = host
        self._folders = list(client.folders)
        self._completer = Completer(self._prepare, self._tell_busy)
        self._pace = Pace()
        self.notebooks = Notebooks(self.documents)
        self._live = Live(self.documents)
        self._indexer = Indexer(host, self._indexable)
        self._indexed: Workspace | None = None  # what the index is to hold
        self._leads_to: dict[str, str] = {}  # an open document that is a link, and the file behind it
        self._requests = 0
        self._edited: set[str] = set()  # documents changed since the last request for them
        self._numbers_as_we_do = False

    def start(self) -> None:
        """The client is ready (`initialized`)."""
        self._host.watchers.add(self._engine_changed)
        self._status.start()
        self.offer.start()
        self.configuration.start()

    def close(self) -> None:
        """The client has gone."""
        self._status.close()
        self.offer.close()
        self.configuration.close()
        self._live.close()
        self._host.watchers.discard(self._engine_changed)
        self._indexer.close()

    def folders_changed(self, added: Iterable[str], removed: Iterable[str]) -> None:
        gone = set(removed)
        self._folders = [folder for folder in self._folders if folder not in gone] + list(added)
        self._index()

    def opened(self, uri: str, language_id: str, version: int, text: str) -> None:
        if not is_uri(uri):
            return  # whose file it is, and whether a secret one, nobody can tell
        self._completer.closed(uri)  # a document may be opened anew
        self._leads_to[uri] = resolved(uri)
        document = self.documents.open(uri, language_id, version, text)
        self._indexer.edited(uri)
        if not self._excluded(uri):
            self._live.opened(document)

    def changed(self, uri: str, version: int, changes: Iterable[Change]) -> None:
        edits = self.documents.change(uri, version, changes)
        self._edited.add(uri)
        self._completer.edited(uri, edits)
        self._indexer.edited(uri)
        document = self.documents.get(uri)
        if document is not None and not self._excluded(uri):
            self._live.edited(document, edits)

    def closed(self, uri: str) -> None:
        self.documents.close(uri)
        self._live.closed(uri)
        self._indexer.edited(uri)
        self._leads_to.pop(uri, None)
        self._edited.discard(uri)
        self._completer.closed(uri)

    def complete(self, uri: str, position: Position, selected: Selected | None, asker: Asker) -> Any:
        """The asker's reply: at once if there is nothing to be had, otherwise as a task.

        The task raises SupersededError if a newer request for the document comes first.
        """
        self._requests += 1
        automatic = self._is_automatic(uri, asker)
        document = self.documents.get(uri)
        if document is not None and self._may_complete(document):
            where = place(document, position, selected)
            if where is not None:
                return self._start(document, where, asker, automatic)
        self._completer.supersede(uri)
        return asker.convert([])

    def restart_engine(self) -> None:
        if self.configuration.engine is None:
            self.configuration.refresh()
        else:
            self._host.restart()

    def stats(self) -> dict[str, Any]:
        """`specter/stats`."""
        counts, last = self._completer.counts, self._status.last
        measured = {} if last is None else last.to_json()
        return {
            "requests": self._requests,
            "completions": counts.completions,
            "cancelled": counts.cancelled,
            "superseded": counts.superseded,
            "typedThrough": counts.typed_through,
            **self._host.usage(),
            **self.feedback.to_json(),
            "last": {name: value for name, value in measured.items() if name not in ("text", "token_ids")} or None,
        }

    def context(self, uri: str, position: Position) -> dict[str, Any]:
        """`specter/context`: what a request at this position would send. Raises RefusedError."""
        if self._excluded(uri):
            return {"excluded": True}
        document, settings, config = self.documents.get(uri), self.configuration.settings, self.configuration.engine
        if document is None:
            raise RefusedError("the document is not open")
        where = place(document, position, None)
        if where is None or settings is None or config is None or not self._host.ready:
            raise RefusedError("the models are not loaded")
        pieces = self._pieces(document, where, settings, config)
        prompt = self._host.preview(self._request(document, where, settings, config, pieces))
        uris = dict(zip(context.snippets(pieces), (piece.uri for piece in pieces), strict=True))
        return {
            "prompt": prompt.text,
            "prefix": prompt.prefix,
            "suffix": prompt.suffix,
            "snippets": [{"uri": uris[snippet], "text": snippet.text} for snippet in prompt.snippets],
            "tokens": prompt.tokens,
        }

    def _may_complete(self, document: Document) -> bool:
        settings = self.configuration.settings
        if settings is None or self.configuration.engine is None or self._host.health.state != "ready":
            self._status.tell(again=True)
            return False
        return settings.allows(document.language_id) and not self._excluded(document.uri)

    def _excluded(self, uri: str) -> bool:
        settings = self.configuration.settings or Settings()
        names = {uri, self._leads_to.get(uri, uri)}
        return any(exclusions.excluded(name, self._folders, settings.exclude) for name in names)

    def _is_automatic(self, uri: str, asker: Asker) -> bool:
        """When inline completion was proposed, 1 was what 2 is now. A client that has never sent a 2 may be of that
        time; but nothing is automatic without an edit."""
        self._numbers_as_we_do |= asker.says_automatic
        edited = uri in self._edited
        self._edited.discard(uri)
        return asker.says_automatic or (edited and not self._numbers_as_we_do)

    def _start(self, document: Document, where: Place, asker: Asker, automatic: bool) -> Any:
        drafter, language = self._host.description().get("drafter", ""), document.language_id

        def suggestion(offer: Offer) -> Suggestion:
            self.feedback.offered(offer.id, language, drafter)  # a text that still grows can be accepted, too
            return Suggestion(offer.id, offer.text, where.start, where.end)

        def ended(outcome: Outcome) -> Any:
            self._status.record(outcome)
            if outcome.first_text_s is not None:
                self._pace.answered(outcome.first_text_s)
            return asker.convert([suggestion(offer) for offer in outcome.offers])

        job = self._job(document, where)
        if automatic:
            job = replace(job, delay_s=self._delay_s())
        else:
            job = replace(job, alternatives=context.alternatives(job.request))
        listener = Listener(lambda offer: asker.grew(suggestion(offer)), ended)
        return self._completer.start(job, self._host.stream, listener)

    def _prepare(self, uri: str, position: Position) -> None:
        """The whole of a suggestion stands in the document, up to this place (code points): what may come next?"""
        document = self.documents.get(uri)
        if document is None or not self._may_complete(document):
            return
        where = place(document, document.wire(position), None)
        if where is None:
            return
        job = self._job(document, where)
        line = document.lines[position.line]
        if job.shape().complete("\n") and not line[position.character :].strip():
            # Then what comes next comes on a new line, indented as this one.
            job = self._job(document, where, ahead="\n" + indentation(line))
        self._completer.prepare(job, self._host.stream, lambda: self._host.usage()["waitingRequests"] > 0)

    def _job(self, document: Document, where: Place, ahead: str = "") -> Job:
        settings, config = self.configuration.settings, self.configuration.engine
        assert settings is not None
        assert config is not None
        pieces = self._pieces(document, where, settings, config)
        request = self._request(document, where, settings, config, pieces, ahead)
        shape = cache(lambda: context.shape(request, document.language_id, settings))
        return Job(document.uri, where.cursor, request, shape, where.selected, ahead)

    def _delay_s(self) -> float:
        settings = self.configuration.settings
        assert settings is not None
        wanted = self._pace.delay(time.monotonic())  # measured in any case
        return wanted if settings.debounce_ms is None else settings.debounce_ms / 1000

    def _request(
        self,
        document: Document,
        where: Place,
        settings: Settings,
        config: EngineConfig,
        pieces: Iterable[Piece],
        ahead: str = "",
    ) -> CompletionRequest:
        snapshot = self.notebooks.joined(document.snapshot(where.head, where.tail))
        snippets = context.snippets(pieces)
        return context.build(snapshot, self._folders, settings, config, where.selected + ahead, snippets)

    def _pieces(self, document: Document, where: Place, settings: Settings, config: EngineConfig) -> tuple[Piece, ...]:
        """Of other files; by default only for a model that was trained to read them."""
        most = settings.max_snippets
        if most is None:
            most = MOST if self._host.reads_other_files else 0
        room = self._host.prompt_room(config.max_tokens)
        workspace = Workspace(tuple(self._folders), settings.exclude)
        return self._live.pieces(document, where.cursor.line, Wanted.within(room, most, settings.open_files, workspace))

    def _tell_busy(self) -> None:
        self._status.busy = self._completer.live > 0
        self._status.tell()

    def _indexable(self) -> list[Document]:
        return [document for document in self.documents if not self._excluded(document.uri)]

    def _engine_changed(self, health: Health) -> None:
        if health.state == "ready":
            self._indexed = None  # this engine knows nothing yet
        self._index()

    def _index(self) -> None:
        """Has the index hold what may be shown, where guesses are looked for in it."""
        settings = self.configuration.settings
        wanted = None
        if settings is not None and settings.enabled and self._host.uses_workspace:
            wanted = Workspace(tuple(self._folders), settings.exclude)
        if wanted != self._indexed:
            self._indexed = wanted
            self._indexer.restart(wanted)

    def _configured(self) -> None:
        self._index()
        settings = self.configuration.settings
        self._status.enabled = settings is None or settings.enabled
        if not self._status.enabled:
            self._completer.stop_all()
        self._completer.forget()
        self._status.tell()
