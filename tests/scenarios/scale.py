"""How much a scenario does: sizes for CI by default, more by hand."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("JOBWIRE_TEST_SCALE", "1"))
"""A factor on every count of jobs, races or rounds that means more the larger it is."""


def scaled(count: int) -> int:
    """`count` times JOBWIRE_TEST_SCALE, at least 1."""
    return max(1, round(count * SCALE))
