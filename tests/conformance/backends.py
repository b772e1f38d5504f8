"""The backends that the suite runs against. Each says what it lacks; tests that need it are skipped with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Protocol

from jobwire_server.store.base import Store
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.prepare import partition_of
from jobwire_server.store.redis import RedisStore

from tests.clock import Clock
from tests.engines import Engine


class Backend(Protocol):
    """A fresh, empty engine of some sort."""

    lacks: Mapping[str, str]
    """What it cannot do: why."""

    async def open(self, replica: str = "", *, sweep_interval_ms: int = 0) -> Store:
        """A store object over the engine; several share its state."""

    async def lose_records(self, namespace: str, ids: Sequence[str]) -> int:
        """Takes records away behind the store's back, as an eviction or a hand does: every index still names them.

        Answers how many there were.
        """

    async def kinds(self) -> set[str]:
        """The kinds of keys in the engine (unless it lacks "engine")."""

    def engine_down(self) -> AbstractContextManager[None]:
        """The engine is down inside the block and runs again, empty, afterwards (unless it lacks "engine")."""

    async def check(self) -> None:
        """After a test: nothing was left that should not be there."""


class MemoryBackend:
    """The rules in plain Python."""

    lacks: Mapping[str, str] = MappingProxyType({"engine": "memory has no engine with keys, none that could be down"})

    def __init__(self, clock: Clock, partitions: int) -> None:
        self._first = MemoryStore(clock=clock, partitions=partitions, sweep_interval_ms=0)

    async def open(self, replica: str = "", *, sweep_interval_ms: int = 0) -> Store:
        return self._first.sibling(replica, sweep_interval_ms=sweep_interval_ms)

    async def lose_records(self, namespace: str, ids: Sequence[str]) -> int:
        return lose_from_memory(self._first, namespace, ids)

    async def kinds(self) -> set[str]:
        raise NotImplementedError

    def engine_down(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    async def check(self) -> None:
        """Nothing outlives the test."""


class EngineBackend:
    """The production backend on a real engine."""

    def __init__(self, clock: Clock, partitions: int, engine: Engine) -> None:
        self.lacks: Mapping[str, str] = (
            {} if engine.can_stop else {"engine": "this engine cannot be stopped and started"}
        )
        self._clock = clock
        self._partitions = partitions
        self._engine = engine

    async def open(self, replica: str = "", *, sweep_interval_ms: int = 0) -> Store:
        return await RedisStore.connect(
            self._engine.url,
            partitions=self._partitions,
            clock=self._clock,
            replica=replica,
            sweep_interval_ms=sweep_interval_ms,
        )

    async def lose_records(self, namespace: str, ids: Sequence[str]) -> int:
        return await lose_from_engine(self._engine, self._partitions, namespace, ids)

    async def kinds(self) -> set[str]:
        return await self._engine.kinds()

    def engine_down(self) -> AbstractContextManager[None]:
        return self._engine.down()

    async def check(self) -> None:
        assert await self._engine.keys_without_ttl() == []


def lose_from_memory(store: MemoryStore, namespace: str, ids: Sequence[str]) -> int:
    """Takes records, as far as there are any, out of the store's state; answers how many there were."""
    partitions = store._state.partitions
    lost = [partitions[store.partition_of(namespace, job_id)].records.pop((namespace, job_id), None) for job_id in ids]
    return len(ids) - lost.count(None)


async def lose_from_engine(engine: Engine, partitions: int, namespace: str, ids: Sequence[str]) -> int:
    """Deletes the keys of records, as far as there are any; answers how many there were."""
    async with engine.client() as client, client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            partition = partition_of(namespace, job_id, partitions)
            pipeline.delete(f"jobwire:{{{partition}}}:job:{namespace}\x1f{job_id}")
        deleted: list[int] = await pipeline.execute()
    return sum(deleted)
