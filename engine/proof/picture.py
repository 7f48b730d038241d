"""A picture of first-token frequencies: target, draft and what speculative decoding emitted, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.proof.frequencies import FirstTokens

_TARGET, _DRAFT, _OBSERVED = "#1f5fa8", "#c9cdd3", "#e8833a"
_LONGEST_LABEL = 14


def plot(results: Sequence[FirstTokens], path: Path) -> None:
    """Writes a PNG or SVG (by the suffix of `path`), one panel a prompt. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure  # an optional dependency, and slow to import

    rows = (len(results) + 1) // 2
    figure = Figure(figsize=(13, 3.9 * rows + 0.9), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flat
    for panel, result in zip(panels, results, strict=False):
        _draw_panel(panel, result)
    for panel in list(panels):
        panel.set_axis_off()
    draws = f"{results[0].draws:,} draws a prompt" if results else "no draws"
    figure.suptitle(f"First token of a completion: the target's law, and what speculative decoding emits ({draws})")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130)


def _draw_panel(panel: Any, result: FirstTokens) -> None:
    places, width = range(len(result.tokens)), 0.28
    panel.bar([x - width for x in places], [t.target for t in result.tokens], width, color=_TARGET, label="target")
    panel.bar(
        places,
        [token.observed for token in result.tokens],
        width,
        yerr=[token.standard_error for token in result.tokens],
        color=_OBSERVED,
        error_kw={"elinewidth": 1.2, "capsize": 2},
        label="emitted (± 1 standard error)",
    )
    panel.bar([x + width for x in places], [t.draft for t in result.tokens], width, color=_DRAFT, label="draft")
    panel.set_xticks(list(places), [_label(token.text) for token in result.tokens], rotation=40, ha="right", fontsize=8)
    for label in panel.get_xticklabels():
        label.set_family("monospace")
    panel.set_ylabel("probability")
    panel.set_ylim(bottom=0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title(f"{result.drafter}, after  {result.prompt.strip() or 'an indent'}", loc="left")
    panel.text(0.99, 0.97, _summary(result), transform=panel.transAxes, ha="right", va="top", fontsize=8.5)


def _label(text: str) -> str:
    """A token as Python writes it, with visible spaces; a dollar must not start mathematics."""
    quoted = repr(text).replace(" ", "␣")
    shown = quoted if len(quoted) <= _LONGEST_LABEL else quoted[: _LONGEST_LABEL - 1] + "…"
    return shown.replace("$", r"\$")


def _summary(result: FirstTokens) -> str:
    top_p = f", top-p {result.sampling.top_p:g}" if result.sampling.top_p < 1 else ""
    return (
        f"temperature {result.sampling.temperature:g}{top_p}\n"
        f"largest deviation {result.fit.largest_deviation:.1f} standard errors\n"
        f"chi-square {result.fit.chi_square:.0f} on {result.fit.degrees} (p = {result.fit.p_value:.2f})\n"
        f"distance from the target's law: draft {result.draft_total_variation:.3f},\n"
        f"emitted {result.fit.total_variation:.4f}, as many draws from it {result.fit.expected_total_variation:.4f}\n"
        f"guesses accepted {result.acceptance:.4f}, expected {result.expected_acceptance:.4f}"
    )
