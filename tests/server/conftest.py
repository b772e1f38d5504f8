"""Fixtures for tests of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from jobwire_server.dispatch import credit, hub, pace, timers
from jobwire_server.dispatch.dispatch import Dispatch
from jobwire_server.dispatch.queue_view import QueueView
from jobwire_server.store import limits

from tests.server.probe import Probe, Stub, Views, serving


@pytest.fixture
def store() -> Probe:
    """An empty store."""
    return Probe()


@pytest.fixture
async def stub(store: Probe) -> AsyncIterator[Stub]:
    """Of a server around `store`."""
    async with serving(store) as stub:
        yield stub


@pytest.fixture
async def dispatch(store: Probe) -> AsyncIterator[Dispatch]:
    """The dispatch layer around `store`, without gRPC."""
    dispatch = Dispatch(store)
    async with dispatch.running():
        yield dispatch


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks: whatever comes was told by a notice or a caller, and no clock is needed to see that."""
    monkeypatch.setattr(pace, "LOOK_SECONDS", 3_600.0)
    monkeypatch.setattr(limits, "WAITER_EXPIRY_MS", 3_600_000)


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks what became of a lease: credit comes back by a call or a notice."""
    monkeypatch.setattr(credit, "CHECK_SECONDS", 3_600.0)


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sweeps without knowing of something that is due."""
    monkeypatch.setattr(timers, "_SWEEP_SECONDS", 3_600.0)


@pytest.fixture(autouse=True)
def views(monkeypatch: pytest.MonkeyPatch) -> Views:
    """What the test's servers know of their queues."""
    seen = Views()

    class Seen(QueueView):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            seen.append(self)

    monkeypatch.setattr(hub, "QueueView", Seen)
    return seen
