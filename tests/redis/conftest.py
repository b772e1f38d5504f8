"""Stores on a real, empty engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from jobwire_server.store.redis import RedisStore

from tests.engines import Engine


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[RedisStore]:
    """A store with one partition and the engine's own clock."""
    await engine.flush()
    store = await RedisStore.connect(engine.url, replica="one", sweep_interval_ms=0)
    yield store
    await store.close()
    assert await engine.keys_without_ttl() == []
