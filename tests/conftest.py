"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clock import Clock
from tests.engines import Engine, running_engine
from tests.telemetry import Recorded, recording


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One real engine per session (with xdist: per worker). Tests that use it empty it first."""
    with running_engine() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    """A clock of the test's own."""
    return Clock()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Spans and metrics of the test."""
    with recording() as recorded:
        yield recorded
