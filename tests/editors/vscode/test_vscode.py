"""The extension in a real VS Code (code-server, headless chromium) against the real server on the embedded pair.

Slow, and it installs tools into .cache/ the first time: run by `make test-editors`, not by `make test`. The scenarios
are in scenarios.mjs; a failed one leaves `failed.png` and the messages in its folder under pytest's tmp_path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import vscode_tools as tools

SCENARIOS = re.findall(r"^  async (\w+)\(\) \{$", (tools.HERE / "scenarios.mjs").read_text("utf-8"), re.MULTILINE)
CORE = ("stream", "grows", "cancel", "killed", "status")

pytestmark = [pytest.mark.editors, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def vscode(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, str]:
    base = tmp_path_factory.getbasetemp()
    run = base if worker_id == "master" else base.parent  # of all who test side by side
    return tools.prepare(run / "vscode")


@pytest.fixture(scope="session")
def scenarios(vscode: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tools.Scenarios]:
    with tools.Scenarios(vscode, tmp_path_factory.mktemp("editors")) as scenarios:
        yield scenarios


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[pytest.mark.core] if name in CORE else []) for name in SCENARIOS]
)
def test_vscode(scenario: str, scenarios: tools.Scenarios, tmp_path: Path) -> None:
    done = scenarios.run(scenario, tmp_path)
    print(*done.said, sep="\n")
    assert done.fault == "", f"{done.fault}\nsee {tmp_path}"
