// What the status item says. Pure.

export type State = "missing" | "starting" | "loading" | "ready" | "busy" | "off" | "error";

/** What is known of the server; `percent` only while loading. */
export interface Report {
  readonly state: State;
  readonly message: string;
  readonly percent?: number | undefined;
  readonly pair?: string | undefined;
  readonly device?: string | undefined;
  readonly tokensPerSecond?: number | undefined;
  readonly acceptance?: number | undefined;
}

/** The last completion as this editor saw it, in milliseconds from the request. */
export interface Latency {
  readonly firstMs: number;
  readonly totalMs: number;
}

/** What is true of the editor that has the focus. */
export interface Place {
  readonly language: string | undefined;
  readonly languageOff: boolean;
  readonly tooLargeMb: number | undefined;
  readonly restricted: boolean;
}

export interface Presentation {
  readonly text: string;
  readonly tooltip: string; // markdown
  readonly severity: "none" | "warning" | "error";
}

const ICONS: Record<State, string> = {
  missing: "$(warning)",
  starting: "$(loading~spin)",
  loading: "$(loading~spin)",
  ready: "$(sparkle)",
  busy: "$(sync~spin)",
  off: "$(circle-slash)",
  error: "$(error)",
};

const WORDS: Record<State, string> = {
  missing: "not installed",
  starting: "starting",
  loading: "loading",
  ready: "ready",
  busy: "completing",
  off: "off",
  error: "error",
};

export function present(report: Report, latency: Latency | undefined, place: Place): Presentation {
  const here = hereOff(report, place);
  const state = here === undefined ? report.state : "off";
  const percent = state === "loading" && report.percent !== undefined ? ` ${Math.round(report.percent)}%` : "";
  const said = here ?? report.message;
  const lines = [`**Specter** · ${WORDS[state]}${percent}${said === "" ? "" : `: ${escaped(said)}`}`];
  const facts = [
    report.pair ? `Models: ${escaped(report.pair)}` : "",
    report.device ? `Device: ${escaped(report.device)}` : "",
    report.tokensPerSecond ? `Speed: ${report.tokensPerSecond.toFixed(0)} tokens/s` : "",
    report.acceptance ? `Drafts accepted: ${Math.round(100 * report.acceptance)} %` : "",
    latency
      ? `Last completion: ${Math.round(latency.firstMs)} ms to the first text, ${Math.round(latency.totalMs)} ms in all`
      : "",
    place.restricted ? "Restricted mode: this folder's own server and model settings are ignored" : "",
  ].filter((fact) => fact !== "");
  if (facts.length > 0) lines.push(facts.map((fact) => `- ${fact}`).join("\n"));
  lines.push("Click for the menu");
  return {
    text: `${ICONS[state]} Specter${percent}`,
    tooltip: lines.join("\n\n"),
    severity: state === "error" ? "error" : state === "missing" ? "warning" : "none",
  };
}

/** Why there is nothing in this editor although the server would. */
function hereOff(report: Report, place: Place): string | undefined {
  if (report.state !== "ready" && report.state !== "busy" && report.state !== "loading") return undefined;
  if (place.languageOff && place.language !== undefined) return `switched off for ${place.language}`;
  if (place.tooLargeMb !== undefined) return `this file is too large (${place.tooLargeMb.toFixed(1)} MB)`;
  return undefined;
}

function escaped(text: string): string {
  return text.replace(/[\\`*_{}[\]()#+!<>|~]/g, "\\$&").replace(/\s+/g, " ");
}
