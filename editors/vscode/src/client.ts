// The language client: vscode-languageclient without what this extension does itself, and the messages of Specter's own.

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  NotificationType,
  ProgressType,
  RequestType,
  RevealOutputChannelOn,
  type ServerOptions,
} from "vscode-languageclient/node";
import type { Alternative, Position, Selected } from "./suggestion";

/** Documents of these schemes are completed; the output of tools, diffs and the like are not. */
export const SELECTOR = ["file", "untitled", "vscode-notebook-cell", "vscode-vfs", "vscode-remote"].map((scheme) => ({
  scheme,
}));

const LARGEST = 2_000_000; // UTF-16 units; above that a keystroke costs the server more than it gives

/** Settings that are none of the server's business; it would complain of keys that it does not know. */
const OWN_SETTINGS = [
  "streaming",
  "server.path",
  "server.args",
  "server.python",
  "server.package",
  "server.startTimeoutS",
];

export interface Status {
  readonly state: "loading" | "ready" | "busy" | "off" | "error";
  readonly message: string;
  readonly pair: string;
  readonly device: string;
  readonly tokensPerSecond: number;
  readonly acceptance: number;
}

export type Context =
  | { readonly excluded: true }
  | {
      readonly excluded?: undefined;
      readonly prompt: string;
      readonly prefix: string;
      readonly suffix: string;
      readonly snippets: readonly { readonly uri: string; readonly text: string }[];
      readonly tokens: number;
    };

interface CompletionParams {
  readonly textDocument: { readonly uri: string };
  readonly position: Position;
  readonly context: {
    readonly triggerKind: 1 | 2; // invoked, automatic
    readonly selectedCompletionInfo?: { readonly range: { start: Position; end: Position }; readonly text: string };
  };
  readonly partialResultToken: string;
}

interface Item {
  readonly insertText: string;
  readonly range: { readonly start: Position; readonly end: Position };
  readonly command?: { readonly arguments?: readonly unknown[] };
}

interface Items {
  readonly items: readonly Item[];
}

const INLINE_COMPLETION = new RequestType<CompletionParams, Items, void>("textDocument/inlineCompletion");
const PARTIAL = new ProgressType<Items>();
const STATUS = new NotificationType<Status>("specter/status");
const CONTEXT = new RequestType<unknown, Context, void>("specter/context");
const STATS = new RequestType<Record<string, never>, unknown, void>("specter/stats");
const DID_SHOW = new NotificationType<unknown>("textDocument/didShowCompletion");
const DID_PARTLY_ACCEPT = new NotificationType<unknown>("textDocument/didPartiallyAcceptCompletion");
const EXECUTE = new RequestType<unknown, unknown, void>("workspace/executeCommand");

let tokens = 0;

export interface Events {
  status(status: Status): void;
  loaded(percent: number | undefined): void;
  closed(): void;
}

export class Client extends LanguageClient {
  constructor(server: ServerOptions, log: vscode.LogOutputChannel, events: Events) {
    super("specter", "Specter", server, options(log, events));
    this.onNotification(STATUS, events.status);
  }

  get version(): string | undefined {
    const info = this.initializeResult?.serverInfo;
    return info?.name === "specter" ? (info.version ?? "0") : undefined;
  }

  /** Not registered: provider.ts asks for inline completions; commands.ts has the commands. */
  override registerFeature(feature: Parameters<LanguageClient["registerFeature"]>[0]): void {
    const method = "registrationType" in feature ? feature.registrationType.method : "";
    if (method !== "textDocument/inlineCompletion" && method !== "workspace/executeCommand") {
      super.registerFeature(feature);
    }
  }

  /** To the log only: what the user should know is said once, in words that help, by server.ts. */
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  /** Asks for a completion; `grew` hears of it as it grows, the promise has the last word. */
  async complete(
    request: { uri: vscode.Uri; cursor: Position; selected: Selected | undefined; automatic: boolean },
    grew: (alternatives: Alternative[]) => void,
    token: vscode.CancellationToken,
  ): Promise<Alternative[]> {
    const { uri, cursor, selected } = request;
    const partialResultToken = `specter/partial/${++tokens}`;
    const listening = this.onProgress(PARTIAL, partialResultToken, (value) => grew(alternatives(value)));
    const context = {
      triggerKind: request.automatic ? (2 as const) : (1 as const),
      ...(selected && {
        selectedCompletionInfo: { range: { start: selected.start, end: selected.end }, text: selected.text },
      }),
    };
    const textDocument = { uri: this.code2ProtocolConverter.asUri(uri) };
    try {
      const params = { textDocument, position: cursor, context, partialResultToken };
      return alternatives(await this.sendRequest(INLINE_COMPLETION, params, token));
    } finally {
      listening.dispose();
    }
  }

  context(document: vscode.TextDocument, position: Position): Promise<Context> {
    const textDocument = this.code2ProtocolConverter.asTextDocumentIdentifier(document);
    return this.sendRequest(CONTEXT, { textDocument, position });
  }

  stats(): Promise<unknown> {
    return this.sendRequest(STATS, {});
  }

  shown(id: string): void {
    this.tell(DID_SHOW, { item: item(id) });
  }

  partlyAccepted(id: string, acceptedLength: number): void {
    this.tell(DID_PARTLY_ACCEPT, { item: item(id), acceptedLength });
  }

  accepted(id: string): void {
    this.execute("specter.accepted", id);
  }

  rejected(id: string): void {
    this.execute("specter.rejected", id);
  }

  private tell(type: NotificationType<unknown>, params: unknown): void {
    if (this.isRunning()) this.sendNotification(type, params).catch(() => {});
  }

  private execute(command: string, id: string): void {
    if (this.isRunning()) this.sendRequest(EXECUTE, { command, arguments: [id] }).catch(() => {});
  }
}

/** The size of a document in MB if it is too large to be completed. */
export function tooLargeMb(document: vscode.TextDocument): number | undefined {
  const size = document.offsetAt(document.lineAt(document.lineCount - 1).range.end);
  return size > LARGEST ? size / 1_000_000 : undefined;
}

function options(log: vscode.LogOutputChannel, events: Events): LanguageClientOptions {
  const sent = new Set<string>(); // documents the server has; the others were too large when they were opened
  const known = (document: vscode.TextDocument) => sent.has(document.uri.toString());
  return {
    documentSelector: SELECTOR,
    outputChannel: log,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    initializationFailedHandler: () => false, // no message of its own: server.ts has a better one
    errorHandler: {
      error: () => ({ action: ErrorAction.Continue, handled: true }),
      closed: () => {
        events.closed();
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    },
    middleware: {
      didOpen: async (document, next) => {
        if (tooLargeMb(document) !== undefined) return;
        sent.add(document.uri.toString());
        await next(document);
      },
      didChange: async (event, next) => {
        if (known(event.document)) await next(event);
      },
      didClose: async (document, next) => {
        if (sent.delete(document.uri.toString())) await next(document);
      },
      handleWorkDoneProgress: (token, params, next) => {
        events.loaded(params.kind === "end" ? undefined : params.percentage);
        if (params.kind === "end") next(token, params);
      },
      workspace: {
        configuration: async (params, token, next) => {
          const answers = await next(params, token);
          return Array.isArray(answers)
            ? answers.map((answer, index) => (params.items[index]?.section === "specter" ? theirs(answer) : answer))
            : answers;
        },
        didChangeConfiguration: (_sections, next) => next(undefined), // only that; the server asks for what it wants
      },
    },
  };
}

/** The settings that somebody set, without this extension's own: a default of ours would overrule `server.args`. */
function theirs(settings: unknown): unknown {
  if (typeof settings !== "object" || settings === null) return settings;
  const copy = structuredClone(settings) as Record<string, unknown>;
  for (const key of OWN_SETTINGS) {
    const [group = "", name] = key.split(".");
    if (name === undefined) delete copy[group];
    else delete (copy[group] as Record<string, unknown> | undefined)?.[name];
  }
  const configuration = vscode.workspace.getConfiguration("specter");
  for (const key of Object.keys(copy)) {
    const found = configuration.inspect(key);
    if ((found?.globalValue ?? found?.workspaceValue ?? found?.workspaceFolderValue) === undefined) delete copy[key];
  }
  return copy;
}

function alternatives(value: Items | null | undefined): Alternative[] {
  return (value?.items ?? []).map((one) => {
    const [id] = one.command?.arguments ?? [];
    return { id: typeof id === "string" ? id : "", text: one.insertText, start: one.range.start, end: one.range.end };
  });
}

/** An item as the server knows it again: by its command's argument. */
function item(id: string): unknown {
  return { insertText: "", command: { title: "", command: "specter.accepted", arguments: [id] } };
}
