from __future__ import annotations

from typing import Any

import pytest

from engine.config import ConfigError, EngineConfig
from lsp_server.settings import Problem, Settings, parse, setting_key

ABSURD = (10**400, -(10**400), float("inf"), float("-inf"), float("nan"), 1e300, -1)


def test_nothing_given_is_all_defaults() -> None:
    for nothing in (
        (),
        (None,),
        ({},),
        ("text", 5, []),
        ({"pair": None, "target": "", "context": {"openFiles": None}},),
    ):
        assert parse(*nothing) == (Settings(), [])


@pytest.mark.parametrize(
    "given",
    [
        {"topP": 0.9, "context": {"maxSnippets": 3}, "languages": {"markdown": False}},
        {"specter": {"topP": 0.9, "context": {"maxSnippets": 3}, "languages": {"markdown": False}}},
        {"specter.topP": 0.9, "context.maxSnippets": 3, "specter.languages": {"markdown": False}},
    ],
)
def test_the_shapes_in_which_clients_send_them(given: dict[str, Any]) -> None:
    settings, problems = parse(given)
    assert problems == []
    assert settings.engine == {"top_p": 0.9}
    assert settings.max_snippets == 3
    assert not settings.allows("markdown")
    assert settings.allows("python")


def test_later_sources_win() -> None:
    settings, _ = parse({"maxTokens": 10, "deadlineMs": 100}, {"maxTokens": 20}, None, {"debounceMs": "auto"})
    assert (settings.engine, settings.deadline_ms, settings.debounce_ms) == ({"max_tokens": 20}, 100, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enabled", "yes"),
        ("enabled", 1),
        ("pair", 5),
        ("temperature", "hot"),
        ("temperature", True),
        ("seed", -1),
        ("seed", 1.5),
        ("maxTokens", "many"),
        ("deadlineMs", 0),
        ("debounceMs", "soon"),
        *((key, number) for key in ("deadlineMs", "debounceMs", "context.maxSnippets") for number in ABSURD),
        ("multiline", "sometimes"),
        ("languages", ["python"]),
        ("languages", {"python": "no"}),
        ("exclude", "*.py"),
        ("exclude", [1]),
        ("context.openFiles", 3),
        ("server.url", 5),
    ],
)
def test_a_wrong_type_is_named_with_the_fix_and_the_rest_applies(key: str, value: Any) -> None:
    settings, problems = parse({key: value, "maxTokens": 7} if key != "maxTokens" else {key: value})
    (problem,) = problems
    assert problem.key == key
    assert str(problem).startswith(f"specter.{key}: expected ")
    assert key == "maxTokens" or settings == Settings(engine={"max_tokens": 7})


@pytest.mark.parametrize("key", ["temperature", "topP", "seed", "maxTokens"])
@pytest.mark.parametrize("number", ABSURD)
def test_an_absurd_number_for_the_engine_is_one_short_complaint(key: str, number: Any) -> None:
    """Failed with the whole number in the message."""
    settings, problems = parse({key: number})
    if not problems:
        with pytest.raises(ConfigError) as error:
            EngineConfig(**settings.engine)
        problems = [Problem(setting_key(error.value.key), str(error.value))]
    (problem,) = problems
    assert problem.key == key
    assert "\n" not in str(problem)
    assert len(str(problem)) < 160


@pytest.mark.parametrize("glob", ["!", "[z-a].py", "a\\", "[[:digit:]].py", r"[\]].py", "a" * 1001])
def test_a_glob_that_cannot_be_used_is_named_and_the_others_apply(glob: str) -> None:
    given, problems = parse({"exclude": ["*.md", glob]})
    assert "*.md" in given.exclude
    (problem,) = problems
    assert str(problem).startswith(f"specter.exclude: {glob[:20]!r}")
    assert len(str(problem)) < 120


def test_an_unknown_key_comes_with_the_nearest_one() -> None:
    _, (problem,) = parse({"temprature": 1})
    assert str(problem) == "specter.temprature: there is no such setting; did you mean specter.temperature?"
    _, (problem,) = parse({"context": {"zzz": 1}})
    assert str(problem) == "specter.context.zzz: there is no such setting; remove it"
    _, (problem,) = parse({"context": 5})
    assert problem.key == "context"


def test_fields_of_the_engine_are_complained_of_under_their_setting() -> None:
    assert setting_key("top_p") == "topP"
    assert setting_key("draft_length") == "draft_length"
