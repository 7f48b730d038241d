"""The settings that the editors offer are the server's: the same keys and defaults, and no value that it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from lsp_server import settings

EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"
HELP = EXTENSION.parent / "neovim" / "doc" / "specter.txt"


def properties() -> dict[str, dict[str, Any]]:
    groups = json.loads((EXTENSION / "package.json").read_text("utf-8"))["contributes"]["configuration"]
    return {key.removeprefix("specter."): value for group in groups for key, value in group["properties"].items()}


def own() -> set[str]:
    """The extension's own keys, which it does not send: the groups and keys in OWN_SETTINGS."""
    listed = re.search(r"OWN_SETTINGS = \[(.*?)\]", (EXTENSION / "src" / "client.ts").read_text("utf-8"), re.DOTALL)
    assert listed is not None
    names = set(re.findall(r'"([^"]+)"', listed[1]))
    return {key for key in properties() if key in names or key.partition(".")[0] in names}


THEIRS = {key: value for key, value in properties().items() if key not in own()}


def test_the_extension_offers_every_setting_of_the_server_and_no_other() -> None:
    assert sorted(THEIRS) == sorted(settings.KEYS)


def test_what_the_extension_shows_where_nothing_is_set_is_the_servers_default() -> None:
    parsed, problems = settings.parse({key: value["default"] for key, value in THEIRS.items()})
    assert problems == []
    assert EngineConfig(**parsed.engine) == EngineConfig()  # type: ignore[arg-type]  # raises ConfigError
    assert dataclasses.replace(parsed, engine={}) == settings.Settings()


@pytest.mark.parametrize("key", [key for key, value in THEIRS.items() if "enum" in value])
def test_every_choice_that_the_extension_offers_is_one(key: str) -> None:
    for choice in THEIRS[key]["enum"]:
        parsed, problems = settings.parse({key: choice})
        assert problems == [], choice
        EngineConfig(**parsed.engine)  # type: ignore[arg-type]  # raises ConfigError


@pytest.mark.parametrize(
    ("key", "bound"),
    [(key, bound) for key, value in THEIRS.items() for bound in ("minimum", "maximum") if bound in value],
)
def test_the_least_and_the_most_that_the_extension_lets_through_are_taken(key: str, bound: str) -> None:
    parsed, problems = settings.parse({key: THEIRS[key][bound]})
    assert problems == []
    EngineConfig(**parsed.engine)  # type: ignore[arg-type]  # raises ConfigError


def test_the_help_of_the_neovim_plugin_names_every_setting() -> None:
    text = HELP.read_text("utf-8")
    section = text[text.index("*specter-settings*") :]
    assert re.findall(r"^`([\w.]+)`", section, re.MULTILINE) == list(settings.KEYS)
