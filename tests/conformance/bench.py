"""What a conformance test works with: the verbs at its level, the clock, and short ways to do common things."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

from tests.clock import Clock
from tests.requests import claim, create

from .backends import Backend
from .verbs import Verbs


@dataclass
class Bench:
    """One backend at one level, empty at first."""

    backend: Backend
    level: str
    clock: Clock
    verbs: Verbs
    store: Store
    """The store object below; at level "store" it is `verbs` itself."""
    lacks: Mapping[str, str]

    def needs(self, what: str) -> None:
        """Skips the test, with the reason, where this backend or level lacks something."""
        if what in self.lacks:
            pytest.skip(self.lacks[what])

    def ids(self, prefix: str, number: int) -> list[str]:
        """Job ids in one partition, in ascending order: with several partitions, order is a promise within one only."""
        names = (f"{prefix}{index:05}" for index in count())
        together = (name for name in names if self.store.partition_of(limits.DEFAULT_NAMESPACE, name) == 0)
        return [next(together) for _ in range(number)]

    async def add(self, job_id: str = "", queue: str = "", **fields: Any) -> job_pb2.Job:
        """Creates a job that must be new."""
        response = await self.verbs.create(create(job_id, queue, **fields))
        assert response.created
        return response.job

    async def job(self, job_id: str, namespace: str = "") -> job_pb2.Job:
        """The job now, view FULL."""
        request = store_pb2.GetRequest(namespace=namespace, id=job_id, view=job_pb2.JOB_VIEW_FULL)
        return (await self.verbs.get(request)).job

    async def exists(self, job_id: str) -> bool:
        """Whether there is such a job."""
        return (await self.verbs.exists(store_pb2.ExistsRequest(id=job_id))).exists

    async def claim(self, *queues: str, max_jobs: int = 1, **fields: Any) -> list[store_pb2.ClaimedJob]:
        """Up to `max_jobs` jobs."""
        return list((await self.verbs.claim(claim(*queues, max_jobs=max_jobs, **fields))).jobs)

    async def take(self, queue: str, **fields: Any) -> store_pb2.ClaimedJob:
        """The next job of a queue; there must be one."""
        [claimed] = await self.claim(queue, **fields)
        return claimed

    async def claim_ids(self, *queues: str, max_jobs: int = 1) -> list[str]:
        """The ids of the next jobs."""
        return [claimed.job.id for claimed in await self.claim(*queues, max_jobs=max_jobs)]

    async def sweep(self) -> None:
        """Everything that time does by now."""
        for partition in range(self.store.partitions):
            while (await self.store.sweep(partition)).more:
                pass

    async def lose(self, *ids: str) -> None:
        """Takes records, which must be there, away behind the store's back."""
        assert await self.backend.lose_records(limits.DEFAULT_NAMESPACE, ids) == len(ids)


async def refusal(call: Awaitable[object]) -> StoreError:
    """The refusal that a call must meet."""
    with pytest.raises(StoreError) as caught:
        await call
    return caught.value
