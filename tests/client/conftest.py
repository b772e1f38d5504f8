"""A server around a store in memory, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import jobwire
import pytest
from jobwire_server.app import running
from jobwire_server.store.memory import MemoryStore

from tests.client.scripted import Scripted, serving


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """The address of a real server."""
    async with running(MemoryStore(), address="127.0.0.1:0") as server:
        yield server.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[jobwire.Client]:
    """A client of the real server."""
    async with jobwire.connect(address) as client:
        yield client


@pytest.fixture
def scripted() -> Scripted:
    """What the scripted server answers."""
    return Scripted()


@pytest.fixture
async def scripted_client(scripted: Scripted) -> AsyncIterator[jobwire.Client]:
    """A client of the scripted server."""
    async with serving(scripted) as address, jobwire.connect(address) as client:
        yield client
