// The item in the status bar.

import * as vscode from "vscode";
import { tooLargeMb } from "./client";
import { type Latency, type Place, present, type Report } from "./present";

const SETTLE_MS = 150; // states shorter than that would flicker

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("specter.status", vscode.StatusBarAlignment.Right, 100);
  private report: Report = { state: "starting", message: "" };
  private latency: Latency | undefined;
  private pending: NodeJS.Timeout | undefined;
  private readonly disposables: vscode.Disposable[];

  constructor() {
    this.item.name = "Specter";
    this.item.command = "specter.menu";
    this.draw();
    this.item.show();
    const redraw = () => this.draw();
    this.disposables = [
      this.item,
      vscode.window.onDidChangeActiveTextEditor(redraw),
      vscode.workspace.onDidOpenTextDocument(redraw), // also when a document's language changes
      vscode.workspace.onDidGrantWorkspaceTrust(redraw),
      vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("specter") && this.draw()),
    ];
  }

  dispose(): void {
    clearTimeout(this.pending);
    for (const one of this.disposables) one.dispose();
  }

  show(report: Report): void {
    const calm = report.state !== this.report.state && (report.state === "busy" || this.report.state === "busy");
    this.report = report;
    clearTimeout(this.pending);
    if (calm) this.pending = setTimeout(() => this.draw(), SETTLE_MS);
    else this.draw();
  }

  completed(latency: Latency): void {
    this.latency = latency;
    this.draw();
  }

  private draw(): void {
    const { text, tooltip, severity } = present(this.report, this.latency, place());
    this.item.text = text;
    this.item.tooltip = new vscode.MarkdownString(tooltip, true);
    this.item.accessibilityInformation = { label: `${text.replace(/\$\([^)]*\)\s*/, "")}, ${this.report.state}` };
    this.item.backgroundColor =
      severity === "none" ? undefined : new vscode.ThemeColor(`statusBarItem.${severity}Background`);
  }
}

function place(): Place {
  const document = vscode.window.activeTextEditor?.document;
  const languages = vscode.workspace.getConfiguration("specter").get<Record<string, boolean>>("languages", {});
  return {
    language: document?.languageId,
    languageOff: document !== undefined && languages[document.languageId] === false,
    tooLargeMb: document && tooLargeMb(document),
    restricted: !vscode.workspace.isTrusted,
  };
}
