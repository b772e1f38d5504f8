"""The list of scenarios in docs/robustness.md and the names of the tests say the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_scenario_has_a_test_and_every_test_its_scenario() -> None:
    listed = set(re.findall(r"^\| ([A-G]\d\d) \|", (ROOT / "docs/robustness.md").read_text(), re.MULTILINE))
    tests = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
    named = {name.upper() for name in re.findall(r"^(?:async )?def test_([a-g]\d\d)_", tests, re.MULTILINE)}
    assert named == listed
