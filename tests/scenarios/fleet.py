"""Several replicas over one engine, by the engine's own clock: for races, which a clock of the test's would decide."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.app import running
from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

from tests.conformance.conftest import BACKENDS
from tests.conformance.grpc_store import GrpcStore
from tests.conformance.verbs import Verbs
from tests.engines import ENGINE, Engine
from tests.requests import claim, create
from tests.wait import wait_until

REPLICAS = 3


@dataclass
class Fleet:
    """Three replicas over one empty engine. None of the store objects sweeps by itself; servers do."""

    name: str
    verbs: Sequence[Verbs]
    """How each replica is called: the store object itself, or a server around it over a real socket."""
    stores: Sequence[Store]
    addresses: Sequence[str]
    """Of the servers, if there are any."""

    def __post_init__(self) -> None:
        self._turn = count()

    def next(self) -> Verbs:
        """The replicas in turn."""
        return self.verbs[next(self._turn) % len(self.verbs)]

    async def add_all(self, requests: Sequence[store_pb2.CreateRequest]) -> list[job_pb2.Job]:
        """Creates jobs that must be new."""
        jobs = []
        for start in range(0, len(requests), limits.BATCH):
            batch = store_pb2.BatchCreateRequest(requests=requests[start : start + limits.BATCH])
            for result in (await self.next().batch_create(batch)).results:
                assert result.response.created, result
                jobs.append(result.response.job)
        return jobs

    async def add(self, job_id: str, queue: str, **fields: Any) -> None:
        """Creates a job that must be new."""
        await self.add_all([create(job_id, queue, **fields)])

    async def take(self, queue: str, **fields: Any) -> store_pb2.ClaimedJob:
        """The next job of a queue; there must be one."""
        [claimed] = (await self.next().claim(claim(queue, **fields))).jobs
        return claimed

    async def jobs(self, ids: Sequence[str]) -> list[job_pb2.Job]:
        """The jobs now, view FULL; all must be there."""
        jobs = []
        for start in range(0, len(ids), 250):
            some = store_pb2.BatchGetRequest(ids=ids[start : start + 250], view=job_pb2.JOB_VIEW_FULL)
            jobs += [result.job for result in (await self.next().batch_get(some)).results]
        assert [job.id for job in jobs] == list(ids)
        return jobs

    @contextlib.asynccontextmanager
    async def sweeping(self, every: float) -> AsyncIterator[None]:
        """Every replica sweeps every partition, all the time."""
        stop = asyncio.Event()

        async def sweep(store: Store) -> None:
            while not stop.is_set():
                for partition in range(store.partitions):
                    await store.sweep(partition)
                await asyncio.sleep(every)

        async with asyncio.TaskGroup() as group:
            for store in self.stores:
                group.create_task(sweep(store))
            try:
                yield
            finally:
                stop.set()


FLEETS = [*((sort, partitions, False) for sort, partitions in BACKENDS if sort != "memory" or partitions == 1)]
FLEETS.append((ENGINE, 1, True))


@pytest.fixture(params=FLEETS, ids=[f"{sort}-p{parts}{'-grpc' * over}" for sort, parts, over in FLEETS])
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    """On memory and on a real engine, called directly and through servers; checked for leaks after the test."""
    sort, partitions, over_grpc = request.param
    before = asyncio.all_tasks()
    engine: Engine | None = None
    async with contextlib.AsyncExitStack() as stack:
        stores: list[Store] = []
        if sort == "memory":
            first = MemoryStore(partitions=partitions, sweep_interval_ms=0)
            stores = [first, *(first.sibling(f"r{number}", sweep_interval_ms=0) for number in range(1, REPLICAS))]
        else:
            engine = request.getfixturevalue("engine")
            await engine.flush()
            for _ in range(REPLICAS):
                stores.append(await RedisStore.connect(engine.url, partitions=partitions, sweep_interval_ms=0))
        for store in stores:
            stack.push_async_callback(store.close)
        verbs: Sequence[Verbs] = stores
        addresses = []
        if over_grpc:
            servers = [await stack.enter_async_context(running(store)) for store in stores]
            addresses = [server.address for server in servers]
            channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address)) for address in addresses]
            verbs = [GrpcStore(channel) for channel in channels]
        yield Fleet(sort, verbs, stores, addresses)
    mine = {asyncio.current_task()}
    await wait_until(lambda: asyncio.all_tasks() - mine <= before)
    if engine is not None:
        assert await engine.keys_without_ttl() == []
