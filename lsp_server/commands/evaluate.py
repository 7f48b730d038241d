"""Measures what each rule of context and shape is worth, on holes cut from source that the models have not seen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsp_server.commands import UserError
from lsp_server.commands.options import add_engine_options, engine_config, whole
from lsp_server.commands.terminal import load_pair, working
from lsp_server.evaluation.cases import SUFFIXES, cases
from lsp_server.evaluation.rules import RULES, evaluate

if TYPE_CHECKING:
    from engine.holes import Hole

SUMMARY = "measure what each rule of context and shape is worth"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="a project's source files")
    parser.add_argument("--holes", type=whole, default=40, metavar="N", help="in each folder, lines and blocks in turn")
    parser.add_argument(
        "--rules", default=",".join(RULES), metavar="A,B", help=f"of {', '.join(RULES)}; all by default"
    )
    parser.add_argument("--cut-seed", type=whole, default=1, metavar="N", help="which holes are cut")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a Markdown table")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    rules = _rules(arguments.rules)
    if arguments.holes < 2:
        raise UserError(f"--holes {arguments.holes} is too few; use 2 or more")
    config = engine_config(arguments)
    holes = [case for folder in arguments.folders for case in cases(folder, _cut(folder, arguments))]
    pair = load_pair(config)
    with working("completing") as say:
        count = 0

        def done() -> None:
            nonlocal count
            count += 1
            say(f"completing {count} of {len(holes)}")

        rows = [row.to_json() for row in evaluate(pair, config, holes, rules, done)]
    if arguments.json:
        print(json.dumps({"pair": pair.name, "dtype": pair.dtype, "holes": len(holes), "rules": rows}))
    else:
        print(_table(rows))
    return 0


def _rules(text: str) -> list[str]:
    rules = [rule for rule in text.split(",") if rule]
    unknown = next((rule for rule in rules if rule not in RULES), None)
    if unknown is not None or not rules:
        raise UserError(f"--rules: {unknown or text!r} is no rule; use some of {','.join(RULES)}")
    return list(dict.fromkeys(rules))


def _cut(folder: Path, arguments: argparse.Namespace) -> list[Hole]:
    from engine.holes import cut

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give the folder of a project's source files")
    try:
        return cut(folder, arguments.holes, arguments.cut_seed, SUFFIXES)
    except ValueError as error:
        raise UserError(str(error)) from None


def _table(rows: list[dict[str, Any]]) -> str:
    """Markdown, for people and READMEs."""
    head = "| rule | holes | exact match, without → with | edit similarity | better / worse | prompt tokens |"
    lines = [head, "|---|---|---|---|---|---|"]
    for row in rows:
        before, after = row["without"], row["with"]
        lines.append(
            f"| {row['rule']} | {row['holes']} {row['class']} "
            f"| {before['exact_match']:.1%} → {after['exact_match']:.1%} "
            f"| {before['edit_similarity']:.3f} → {after['edit_similarity']:.3f} "
            f"| {row['better']} / {row['worse']} "
            f"| {before['prompt_tokens']:.0f} → {after['prompt_tokens']:.0f} |"
        )
    return "\n".join(lines)
