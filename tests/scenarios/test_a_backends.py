"""No rule holds on one backend and not on another."""

from __future__ import annotations

import random
from typing import Any

import pytest
from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store.base import Store
from jobwire_server.store.draw import SeededDraw
from jobwire_server.store.errors import StoreError
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

from tests.clock import Clock
from tests.conformance import conftest as conformance
from tests.conformance.backends import EngineBackend, MemoryBackend
from tests.engines import ENGINE, Engine
from tests.requests import claim, complete, create, fail, heartbeat, release, update

from . import conftest, fleet
from .scale import scaled


def test_a23_every_scenario_runs_on_every_backend() -> None:
    """Lost leases were taken back by one of a library's brokers and never by its cluster one, as only one subclass had
    the feature (taskiq-redis #130). Sentinel and Cluster join when the store speaks to them.
    """
    assert conftest.backend is conformance.backend
    assert conftest.bench is conformance.bench
    assert set(conformance.BACKENDS) == {(sort, partitions) for sort in ("memory", ENGINE) for partitions in (1, 16)}
    assert {sort for sort, _, _ in fleet.FLEETS} == {"memory", ENGINE}
    assert {over_grpc for _, _, over_grpc in fleet.FLEETS} == {False, True}


def test_a23_what_a_backend_lacks_is_listed(engine: Engine) -> None:
    """The same report (taskiq-redis #130): a difference between backends is one that says so. There is one, and it is
    no rule: memory has no engine to look into.
    """
    assert set(MemoryBackend(Clock(), 1).lacks) == {"engine"}
    assert set(EngineBackend(Clock(), 1, engine).lacks) <= {"engine"}


class History:
    """A history that is drawn as it goes: the same seed makes the same calls, as long as the answers are the same."""

    def __init__(self, store: Store, clock: Clock, seed: int) -> None:
        self._store = store
        self._clock = clock
        self._chance = random.Random(seed)
        self._held: list[store_pb2.ClaimedJob] = []

    async def step(self) -> object:
        """The next call's answer, a refusal included."""
        verb = self._chance.choice([self._create, self._create, self._claim, self._claim, self._settle, self._other])
        try:
            return await verb()
        except StoreError as error:
            return error.reason_name, error.message, error.metadata

    def _one(self) -> store_pb2.ClaimedJob:
        return self._held[-1 - self._chance.randrange(min(len(self._held), 12))]

    async def _create(self) -> object:
        job_id = f"j{self._chance.randrange(200)}"
        options: dict[str, Any] = {
            "priority": self._chance.randrange(3),
            "tenant": self._chance.choice("abc"),
            "lease": self._chance.choice([1, 5]),
            "max_attempts": self._chance.choice([1, 2, 5]),
            "ttl": self._chance.choice([2, 60]),
            "delay": self._chance.choice([None, 1, 3]),
            "queue_timeout": self._chance.choice([3, 60]),
            "payload": self._chance.randbytes(9),
        }
        key = self._chance.random() < 0.3
        return await self._store.create(create("" if key else job_id, "q", key=job_id if key else "", **options))

    async def _claim(self) -> object:
        answer = await self._store.claim(claim("q", max_jobs=3, worker_id="w"))
        self._held += answer.jobs
        return answer

    async def _settle(self) -> object:
        if not self._held:
            return None
        claimed, chance = self._one(), self._chance.random()
        if chance < 0.4:
            return await self._store.complete(complete(claimed, b"r"))
        if chance < 0.6:
            return await self._store.fail(fail(claimed, "why", delay=self._chance.choice([None, 2])))
        if chance < 0.8:
            return await self._store.release(release(claimed))
        return await self._store.heartbeat(heartbeat(claimed))

    async def _other(self) -> object:
        job_id, chance = f"j{self._chance.randrange(200)}", self._chance.random()
        if chance < 0.2:
            return await self._store.cancel(store_pb2.CancelRequest(id=job_id))
        if chance < 0.3:
            return await self._store.delete(store_pb2.DeleteRequest(id=job_id))
        if chance < 0.5:
            return await self._store.update(update(job_id, labels={"l": "v"}, priority=self._chance.randrange(3)))
        if chance < 0.6:
            return await self._store.list_queues(admin_pb2.ListQueuesRequest())
        if chance < 0.8:
            return await self._store.get(store_pb2.GetRequest(id=job_id, view=job_pb2.JOB_VIEW_FULL))
        return [await self._store.sweep(partition) for partition in range(self._store.partitions)]


@pytest.mark.parametrize("partitions", [1, 16])
@pytest.mark.parametrize("seed", range(3))
async def test_a23_a_random_history_is_answered_the_same(engine: Engine, partitions: int, seed: int) -> None:
    """The same report (taskiq-redis #130), for whatever nobody thought of: every answer of a long history, by the rules
    in plain Python and by the engine's scripts.
    """
    await engine.flush()
    clock = Clock()
    draws = SeededDraw(seed), SeededDraw(seed)
    options: dict[str, Any] = {"clock": clock, "partitions": partitions, "replica": "one", "sweep_interval_ms": 0}
    memory = MemoryStore(draw=draws[0], **options)
    redis = await RedisStore.connect(engine.url, draw=draws[1], **options)
    try:
        histories = History(memory, clock, seed), History(redis, clock, seed)
        for number in range(scaled(400)):
            expected, found = [await history.step() for history in histories]
            assert found == expected, f"call {number}"
            clock.advance(ms=(0, 0, 0, 250, 1_000)[number % 5])
        listed = [await store.list_ids(store_pb2.ListIdsRequest(limit=1_000)) for store in (memory, redis)]
        assert listed[0] == listed[1]
        assert listed[0].ids
    finally:
        await redis.close()
    assert await engine.keys_without_ttl() == []
