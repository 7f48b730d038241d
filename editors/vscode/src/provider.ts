// Ghost text. One request to the server at a time; what it streams serves VS Code's requests as long as the user types
// along, and is given up at once when he does not.
//
// VS Code asks once and draws once; for text that grows it has no stable API. But it asks again when a provider that it
// has not asked yet comes up at the same place, and replaces what it shows without a flicker. So each time there is
// more to show, the provider is registered anew and the suggestion is triggered (not explicitly: then VS Code would
// keep the shorter text in front).

import * as vscode from "vscode";
import { type Client, SELECTOR, tooLargeMb } from "./client";
import type { Latency } from "./present";
import { type Edit, type Position, type Selected, Suggestion } from "./suggestion";

const GRACE_MS = 100; // a request that VS Code dropped goes on this long, in case the next one can use it
const SETTLE_MS = 30;
const ASKING_MS = 500; // after that, VS Code does not want to ask again
const GROW_MS = 50; // between two redraws; VS Code adds 50 ms of its own

export const ACCEPTED = "specter.internal.accepted";

/** The key for "dismiss" hides the text before it comes here: from here, that would hit what was typed meanwhile. */
const DISMISSED = "specter.internal.dismissed";

/**
 * `typing`: one suggestion. `key`: the user asked; alternatives come with the last word. `more`: the user asked for
 * alternatives to what is on the screen, which stays there until all have come.
 */
type Kind = "typing" | "key" | "more";

/** One request to the server and what became of it. */
class Live {
  readonly started = performance.now();
  readonly abort = new vscode.CancellationTokenSource();
  firstMs: number | undefined;
  waiting = 0; // requests of VS Code
  told = false; // the server knows that it was shown
  replaced = false; // by one that asked for alternatives at the same place
  private wake = () => {};
  private next = this.renew();

  constructor(
    readonly client: Client,
    readonly document: vscode.TextDocument,
    readonly suggestion: Suggestion,
    readonly kind: Kind,
  ) {}

  changed(): void {
    const wake = this.wake;
    this.next = this.renew();
    wake();
  }

  /** Resolves at the next change, or after so many milliseconds, or with the token. */
  async wait(milliseconds: number, token: vscode.CancellationToken): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    let listener: vscode.Disposable | undefined;
    const timeout = new Promise<void>((resolve) => {
      if (milliseconds < Number.POSITIVE_INFINITY) timer = setTimeout(resolve, milliseconds);
      listener = token.onCancellationRequested(() => resolve());
    });
    await Promise.race([this.next, timeout]);
    clearTimeout(timer);
    listener?.dispose();
  }

  private renew(): Promise<void> {
    return new Promise((resolve) => {
      this.wake = resolve;
    });
  }
}

/** A place where VS Code asked, or was told not to. */
interface Asked {
  readonly document: vscode.TextDocument;
  readonly version: number;
  readonly cursor: vscode.Position;
}

export interface Environment {
  /** The client if the server can complete now. */
  ready(): Client | undefined;
  completed(latency: Latency): void;
  log: vscode.LogOutputChannel;
}

export class Provider implements vscode.Disposable {
  private registration: vscode.Disposable;
  private outdated: vscode.Disposable | undefined; // kept for one turn: VS Code may still hold its items
  private live: Live | undefined;
  private missed: Asked | undefined;
  private answered = -1; // the version of the live document that VS Code has an answer for
  private dismissed: Asked | undefined;
  private asking = 0; // when VS Code was made to ask again, until it does
  private accepting = false;
  private growing: NodeJS.Timeout | undefined;
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly environment: Environment,
    private readonly extensionId: string,
  ) {
    this.registration = this.register();
    this.disposables = [
      vscode.workspace.onDidChangeTextDocument((event) => this.edited(event)),
      vscode.workspace.onDidCloseTextDocument((document) => this.drop(document)),
      vscode.window.onDidChangeActiveTextEditor(() => this.left()),
      vscode.window.onDidChangeTextEditorSelection((event) => this.moved(event)),
      vscode.commands.registerCommand(ACCEPTED, (client: Client, id: string) => this.accepted(client, id)),
      vscode.commands.registerCommand(DISMISSED, () => this.dismiss()),
    ];
  }

  dispose(): void {
    this.stop();
    for (const one of [this.registration, this.outdated, ...this.disposables]) one?.dispose();
  }

  /** The server can complete again: serve what was asked meanwhile, if the user is still there. */
  retry(): void {
    const missed = this.missed;
    this.missed = undefined;
    const editor = vscode.window.activeTextEditor;
    if (missed === undefined || missed.document !== editor?.document || missed.version !== missed.document.version)
      return;
    if (editor.selection.active.isEqual(missed.cursor)) this.ask();
  }

  /** Forget the suggestion: the server has gone or the settings have changed. */
  stop(): void {
    clearTimeout(this.growing);
    this.growing = undefined;
    this.live?.abort.cancel();
    this.live?.changed();
    this.live = undefined;
  }

  /** The user dismissed what is on the screen; it does not come back by itself. */
  dismiss(): void {
    const editor = vscode.window.activeTextEditor;
    this.dismissed = editor && asked(editor.document, editor.selection.active);
    this.reject();
  }

  private reject(): void {
    const live = this.live;
    this.stop();
    if (live?.suggestion.onScreen && live.suggestion.id) live.client.rejected(live.suggestion.id);
  }

  /** Runs a command of VS Code that accepts a part of what is on the screen. */
  async acceptPart(command: string): Promise<void> {
    this.accepting = true;
    try {
      await vscode.commands.executeCommand(command);
    } finally {
      this.accepting = false;
    }
  }

  private register(): vscode.Disposable {
    const registration: vscode.Disposable = vscode.languages.registerInlineCompletionItemProvider(SELECTOR, {
      provideInlineCompletionItems: (document, position, context, token) =>
        registration === this.registration ? this.provide(document, position, context, token) : undefined,
    });
    return registration;
  }

  /** Make VS Code ask again, at the same place. */
  private ask(): void {
    this.asking = performance.now();
    this.outdated?.dispose();
    this.outdated = this.registration;
    this.registration = this.register();
    const how = { providerId: `${this.extensionId}:*`, explicit: false };
    vscode.commands.executeCommand("editor.action.inlineSuggest.trigger", how).then(undefined, () => {});
  }

  private async provide(
    document: vscode.TextDocument,
    cursor: vscode.Position,
    context: vscode.InlineCompletionContext,
    token: vscode.CancellationToken,
  ): Promise<vscode.InlineCompletionItem[] | undefined> {
    this.asking = 0;
    const version = document.version;
    const client = this.environment.ready();
    if (client === undefined) {
      this.missed = asked(document, cursor);
      return undefined;
    }
    if (tooLargeMb(document) !== undefined || severalCursors(document)) return undefined;
    if (automatic(context) && same(this.dismissed, document, cursor)) return undefined;
    const selected = selection(context.selectedCompletionInfo);
    const live = await this.answering(client, document, cursor, selected, context, token);
    if (live === undefined) return undefined;
    this.answered = version;
    const items = this.present(live, selected);
    this.growSoon();
    return items;
  }

  /** The request that answers at this place, when there is something to show of it; undefined if VS Code has moved on. */
  private async answering(
    client: Client,
    document: vscode.TextDocument,
    cursor: vscode.Position,
    selected: Selected | undefined,
    context: vscode.InlineCompletionContext,
    token: vscode.CancellationToken,
  ): Promise<Live | undefined> {
    const running = this.covering(document, cursor, selected, context);
    const live = running ?? this.begin(client, document, cursor, selected, context);
    await this.presentable(live, token);
    if (token.isCancellationRequested) this.abandon(live);
    if (token.isCancellationRequested || live !== this.live) return undefined;
    // What the user typed before the first text came may have been something else.
    const contradicted = live === running && !live.suggestion.covers(cursor, selected);
    return contradicted ? this.answering(client, document, cursor, selected, context, token) : live;
  }

  private covering(
    document: vscode.TextDocument,
    cursor: vscode.Position,
    selected: Selected | undefined,
    context: vscode.InlineCompletionContext,
  ): Live | undefined {
    const live = this.live;
    if (live?.document !== document || !live.suggestion.covers(cursor, selected)) return undefined;
    return automatic(context) || live.kind !== "typing" ? live : undefined; // a key asks for more than there is
  }

  private begin(
    client: Client,
    document: vscode.TextDocument,
    cursor: vscode.Position,
    selected: Selected | undefined,
    context: vscode.InlineCompletionContext,
  ): Live {
    const before = this.live;
    const more =
      before?.document === document && before.suggestion.onScreen && before.suggestion.covers(cursor, selected);
    if (more)
      before.replaced = true; // the server lets the new request go on from it, which a cancel would prevent
    else this.stop();
    const typed = selected ? document.getText(new vscode.Range(position(selected.start), cursor)) : "";
    const suggestion = new Suggestion(selected?.start ?? cursor, cursor, selected, typed);
    const live = new Live(client, document, suggestion, automatic(context) ? "typing" : more ? "more" : "key");
    this.live = live;
    this.answered = -1;
    client
      .complete(
        { uri: document.uri, cursor, selected, automatic: automatic(context) },
        (items) => this.grew(live, () => live.suggestion.grow(items)),
        live.abort.token,
      )
      .then(
        (items) => this.grew(live, () => live.suggestion.grow(items)),
        (error: unknown) => {
          if (!live.abort.token.isCancellationRequested) this.environment.log.debug(`completion: ${reason(error)}`);
        },
      )
      .finally(() => {
        this.grew(live, () => live.suggestion.finish());
        if (live.firstMs !== undefined && !live.replaced && !live.abort.token.isCancellationRequested) {
          const latency = { firstMs: live.firstMs, totalMs: performance.now() - live.started };
          this.environment.completed(latency);
          this.environment.log.debug(
            `completion: first text after ${latency.firstMs.toFixed(1)} ms, all of it after ${latency.totalMs.toFixed(1)} ms`,
          );
        }
      });
    return live;
  }

  private grew(live: Live, change: () => void): void {
    change();
    live.changed();
    if (live === this.live) this.growSoon();
  }

  /** Wait until there is something to show, or it is clear that there will not be. */
  private async presentable(live: Live, token: vscode.CancellationToken): Promise<void> {
    const patience = vscode.workspace.getConfiguration("specter").get<number>("streaming.patienceMs", 120);
    live.waiting++;
    while (live === this.live && !token.isCancellationRequested && !live.suggestion.done) {
      const left = patience - (performance.now() - live.started);
      if (live.kind !== "more" && live.suggestion.presentable(left <= 0)) break;
      await live.wait(left > 0 ? left : Number.POSITIVE_INFINITY, token);
    }
    live.waiting--;
  }

  private present(live: Live, selected: Selected | undefined): vscode.InlineCompletionItem[] {
    const shown = live.suggestion.show(selected);
    const [first] = shown;
    if (first !== undefined && !live.told) {
      live.told = true;
      live.firstMs = performance.now() - live.started;
      live.client.shown(first.id);
    }
    return shown.map((one) => {
      const item = new vscode.InlineCompletionItem(one.text, new vscode.Range(position(one.start), position(one.end)));
      item.command = { title: "Specter: accepted", command: ACCEPTED, arguments: [live.client, one.id] };
      return item;
    });
  }

  /** VS Code does not wait for this answer any more; if nobody else comes to, it is not wanted. */
  private abandon(live: Live): void {
    setTimeout(() => {
      if (live === this.live && !live.told && live.waiting === 0) this.stop();
    }, GRACE_MS);
  }

  private growSoon(): void {
    if (this.growing === undefined && this.live?.suggestion.hasGrown) {
      this.growing = setTimeout(() => {
        this.growing = undefined;
        this.showMore();
      }, GROW_MS);
    }
  }

  /** Redraw with what has come since, unless VS Code is about to ask anyway or the user is elsewhere. */
  private showMore(): void {
    const live = this.live;
    const editor = vscode.window.activeTextEditor;
    if (live?.suggestion.hasGrown !== true || editor?.document !== live.document) return;
    if (performance.now() - this.asking < ASKING_MS) return; // a second time would only set back the first
    const still = this.answered === live.document.version && editor.selections.length === 1;
    if (still && editor.selection.isEmpty && editor.selection.active.isEqual(position(live.suggestion.cursor)))
      this.ask();
  }

  private edited(event: vscode.TextDocumentChangeEvent): void {
    const live = this.live;
    if (live?.document !== event.document || event.contentChanges.length === 0) return;
    const [change] = event.contentChanges;
    const follows =
      event.contentChanges.length === 1 && change !== undefined && live.suggestion.follow(edit(change), this.accepting);
    if (!follows) this.reject();
    else if (this.accepting && live.suggestion.id)
      live.client.partlyAccepted(live.suggestion.id, live.suggestion.accepted);
    live.changed();
  }

  private moved(event: vscode.TextEditorSelectionChangeEvent): void {
    const live = this.live;
    if (live?.document !== event.textEditor.document || event.textEditor !== vscode.window.activeTextEditor) return;
    // When keys come fast, the edit after this move may be here already: look where the cursor comes to rest.
    setTimeout(() => this.checkCursor(live, event.textEditor), SETTLE_MS);
  }

  private checkCursor(live: Live, editor: vscode.TextEditor): void {
    const there = editor.selections.length === 1 && editor.selection.isEmpty;
    if (live === this.live && !(there && editor.selection.active.isEqual(position(live.suggestion.cursor))))
      this.stop();
  }

  private left(): void {
    if (this.live && vscode.window.activeTextEditor?.document !== this.live.document) this.stop();
  }

  private drop(document: vscode.TextDocument): void {
    if (this.live?.document === document) this.stop();
  }

  private accepted(client: Client, id: string): void {
    client.accepted(id);
    vscode.commands.executeCommand("setContext", "specter.hasAccepted", true);
  }
}

function automatic(context: vscode.InlineCompletionContext): boolean {
  return context.triggerKind === vscode.InlineCompletionTriggerKind.Automatic;
}

function asked(document: vscode.TextDocument, cursor: vscode.Position): Asked {
  return { document, version: document.version, cursor };
}

/** Whether nothing has changed since. */
function same(then: Asked | undefined, document: vscode.TextDocument, cursor: vscode.Position): boolean {
  return then?.document === document && then.version === document.version && then.cursor.isEqual(cursor);
}

function severalCursors(document: vscode.TextDocument): boolean {
  const editor = vscode.window.activeTextEditor;
  return editor?.document === document && editor.selections.length > 1;
}

function selection(info: vscode.SelectedCompletionInfo | undefined): Selected | undefined {
  return info && { start: plain(info.range.start), end: plain(info.range.end), text: info.text };
}

function edit(change: vscode.TextDocumentContentChangeEvent): Edit {
  return { start: plain(change.range.start), end: plain(change.range.end), text: change.text };
}

function plain(place: vscode.Position): Position {
  return { line: place.line, character: place.character };
}

function position(place: Position): vscode.Position {
  return new vscode.Position(place.line, place.character);
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
