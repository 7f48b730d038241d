// One suggestion as it grows, while the user may type along. Pure: knows neither the editor nor the server.

export interface Position {
  readonly line: number;
  readonly character: number; // UTF-16 units
}

/** An edit of the document: `text` in place of start..end. */
export interface Edit {
  readonly start: Position;
  readonly end: Position;
  readonly text: string;
}

/** The item that is focused in the suggest widget: accepting it would put `text` in place of start..end. */
export interface Selected {
  readonly start: Position;
  readonly end: Position;
  readonly text: string;
}

/** One alternative, as the server sent it: `text` in place of start..end, as of the request. */
export interface Alternative {
  readonly id: string;
  readonly text: string;
  readonly start: Position;
  readonly end: Position;
}

/** What to put on the screen: `text` in place of start..end, in the document as it is now. */
export interface Shown {
  readonly id: string;
  readonly text: string;
  readonly start: Position;
  readonly end: Position;
}

const PAIRS: ReadonlySet<string> = new Set(["()", "[]", "{}", '""', "''", "``"]);

/**
 * The answer to one request. Between `origin` and `cursor` stands what the user wrote of the suggestion since; the text
 * on the screen only ever grows.
 */
export class Suggestion {
  private alternatives: readonly Alternative[] = [];
  private typed: string;
  private finished = false;
  private visible = ""; // the longest text that was shown, from `origin`
  private offered = 0; // the most alternatives that were shown at once
  private closers = ""; // brackets and quotes that the editor put behind the cursor, and the suggestion replaces

  constructor(
    private origin: Position,
    public cursor: Position,
    private readonly selected: Selected | undefined,
    alreadyTyped: string,
  ) {
    this.typed = alreadyTyped;
  }

  get done(): boolean {
    return this.finished;
  }

  get id(): string | undefined {
    return this.alternatives[0]?.id;
  }

  /** How much of it stands in the document, in UTF-16 units. */
  get accepted(): number {
    return this.typed.length;
  }

  /** Whether there was something on the screen that the user has not written yet. */
  get onScreen(): boolean {
    return this.visible.length > this.typed.length;
  }

  /** What the server has now; a text that takes back what is on the screen is not taken. */
  grow(alternatives: readonly Alternative[]): void {
    const [first] = alternatives;
    if (first === undefined || !first.text.startsWith(this.visible) || !agree(first.text, this.typed)) return;
    this.alternatives = alternatives;
    this.origin = first.start;
  }

  finish(): void {
    this.finished = true;
  }

  /** Takes an edit of the document; `accepted`: of text that was on the screen. False: it contradicts the suggestion. */
  follow(edit: Edit, accepted = false): boolean {
    const { start, end, text } = edit;
    const before = this.upTo(start);
    const behind = end.line === this.cursor.line ? end.character - this.cursor.character : -1;
    if (before === undefined || behind < 0 || behind > this.closers.length) return false;
    if (!accepted && equal(start, this.cursor) && behind === 0 && this.opens(text)) return true;
    const typed = before + text;
    // Deleting what was typed along: while the server is at work, it takes that for a contradiction.
    if ((typed.length < this.typed.length && !this.finished) || !this.retype(typed, advance(start, text))) return false;
    this.closers = this.closers.slice(behind);
    return true;
  }

  /** Whether it answers a request at this place. */
  covers(cursor: Position, selected: Selected | undefined): boolean {
    if (!equal(cursor, this.cursor) || (this.finished && this.rest() === "")) return false;
    if (selected === undefined || this.selected === undefined) return selected === this.selected;
    return equal(selected.start, this.selected.start) && selected.text === this.selected.text;
  }

  /** Whether there is something worth showing: a complete line, or after the user's patience what there is. */
  presentable(patient: boolean): boolean {
    const rest = this.known.slice(this.typed.length);
    return /\S/.test(rest) && (this.finished || patient || this.onScreen || /\S[^\n]*\n/.test(rest));
  }

  /** Whether there is more than on the screen: of the first, or besides it. */
  get hasGrown(): boolean {
    const longer = this.text().length > this.visible.length;
    return this.onScreen && (longer || (this.finished && this.fitting().length > this.offered));
  }

  /** What to show now; from here on it is on the screen. */
  show(selected: Selected | undefined): Shown[] {
    const text = this.text();
    if (!/\S/.test(text.slice(this.typed.length)) || !contains(text.slice(this.typed.length), this.closers)) return [];
    this.visible = text.length > this.visible.length ? text : this.visible;
    const fitting = this.fitting();
    this.offered = Math.max(this.offered, fitting.length);
    return fitting.map((one, index) => this.place(one, index === 0 ? text : one.text, selected));
  }

  /** The alternatives that go on from what was typed. */
  private fitting(): Alternative[] {
    return this.alternatives.filter((one) => one.text.startsWith(this.typed));
  }

  private place(one: Alternative, text: string, selected: Selected | undefined): Shown {
    if (selected !== undefined) return { id: one.id, text, start: selected.start, end: selected.end };
    const replaced = this.selected === undefined && one.end.line === one.start.line ? tail(one) : 0;
    const end = { line: this.cursor.line, character: this.cursor.character + replaced + this.closers.length };
    return { id: one.id, text: text.slice(this.typed.length), start: this.cursor, end };
  }

  /** All of the first alternative that may be shown: while it grows, without the white space at its end. */
  private text(): string {
    return this.finished ? this.known : longer(this.known.trimEnd(), this.visible);
  }

  private get known(): string {
    return this.alternatives[0]?.text ?? "";
  }

  private rest(): string {
    return this.text().slice(this.typed.length);
  }

  /** Takes an opening bracket or quote that the editor closed at once; the server takes that for a contradiction. */
  private opens(text: string): boolean {
    const [open = "", close = ""] = text;
    if (!this.finished || !PAIRS.has(text) || !this.known.startsWith(this.typed + open)) return false;
    if (!contains(this.known.slice(this.typed.length + 1), close + this.closers)) return false;
    this.closers = close + this.closers;
    return this.retype(this.typed + open, advance(this.cursor, open));
  }

  private retype(typed: string, cursor: Position): boolean {
    if (!this.known.startsWith(typed) && !this.prefer(typed) && (this.finished || !typed.startsWith(this.known)))
      return false;
    this.typed = typed;
    this.cursor = cursor;
    return true;
  }

  /** Puts in front the alternative that the user took or types along; false if there is none. */
  private prefer(typed: string): boolean {
    const other = this.alternatives.find((one) => one.text.startsWith(typed));
    if (other === undefined || !this.finished || this.offered < 2) return false;
    this.alternatives = [other, ...this.alternatives.filter((one) => one !== other)];
    this.visible = other.text;
    return true;
  }

  /** What was typed before `place`; undefined if that is not within what was typed. */
  private upTo(place: Position): string | undefined {
    for (let length = this.typed.length; length >= 0; length--) {
      const kept = this.typed.slice(0, length);
      if (equal(advance(this.origin, kept), place)) return kept;
    }
    return undefined;
  }
}

/** Where `text`, inserted at `place`, ends. */
export function advance(place: Position, text: string): Position {
  const lines = text.split(/\r\n|\r|\n/);
  const last = lines[lines.length - 1] ?? "";
  return lines.length === 1
    ? { line: place.line, character: place.character + text.length }
    : { line: place.line + lines.length - 1, character: last.length };
}

export function equal(one: Position, other: Position): boolean {
  return one.line === other.line && one.character === other.character;
}

function agree(text: string, typed: string): boolean {
  return text.startsWith(typed) || typed.startsWith(text);
}

function longer(one: string, other: string): string {
  return one.length >= other.length ? one : other;
}

/** Whether the characters of `part` come in `text` in this order, which VS Code wants of what replaces them. */
function contains(text: string, part: string): boolean {
  let from = 0;
  for (const char of part) {
    from = text.indexOf(char, from) + 1;
    if (from === 0) return false;
  }
  return true;
}

/** How many characters after the cursor an item replaces. */
function tail(one: Alternative): number {
  return one.end.character - one.start.character;
}
