"""Fixtures for tests of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.probe import Probe, Stub, serving


@pytest.fixture
def store() -> Probe:
    """An empty store."""
    return Probe()


@pytest.fixture
async def stub(store: Probe) -> AsyncIterator[Stub]:
    """Of a server around `store`."""
    async with serving(store) as stub:
        yield stub
