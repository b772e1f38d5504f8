"""Every test that asks for `bench` runs on each backend at each level."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from jobwire_server.app import running

from tests.clock import Clock
from tests.engines import ENGINE, Engine
from tests.wait import wait_until

from .backends import Backend, EngineBackend, MemoryBackend
from .bench import Bench
from .grpc_store import GrpcStore

BACKENDS = [(sort, partitions) for sort in ("memory", ENGINE) for partitions in (1, 16)]

OVER_GRPC = {
    "own sweeps": "a server sweeps by itself, so what a sweep of the test's own finds is left to chance",
    "inner verbs": "look, held, notices and the like are no RPCs",
}


@pytest.fixture(params=BACKENDS, ids=[f"{sort}-p{partitions}" for sort, partitions in BACKENDS])
async def backend(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Backend]:
    """An empty backend; checked for leaks after the test."""
    sort, partitions = request.param
    found: Backend
    if sort == "memory":
        found = MemoryBackend(clock, partitions)
    else:
        engine: Engine = request.getfixturevalue("engine")
        await engine.flush()
        found = EngineBackend(clock, partitions, engine)
    yield found
    await found.check()


@pytest.fixture(params=["store", "grpc"])
async def bench(request: pytest.FixtureRequest, backend: Backend, clock: Clock) -> AsyncIterator[Bench]:
    """The verbs at one level: the store object itself, or a server over it on a real socket."""
    before = asyncio.all_tasks()
    store = await backend.open()
    if request.param == "store":
        yield Bench(backend, "store", clock, store, store, backend.lacks)
    else:
        async with (
            running(store, address="127.0.0.1:0") as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            yield Bench(backend, "grpc", clock, GrpcStore(channel), store, {**backend.lacks, **OVER_GRPC})
    await store.close()
    mine = {asyncio.current_task()}
    await wait_until(lambda: asyncio.all_tasks() - mine <= before)
