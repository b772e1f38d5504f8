"""Jobs that were claimed and did not reach their client go back at once, uncounted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

import structlog
from jobwire.v1 import store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

from . import metrics
from .background import Background
from .credit import lease_of

_log = structlog.get_logger("jobwire.dispatch")

Jobs = Sequence[store_pb2.ClaimedJob]


class Undelivered:
    """Gives back in the background, since those who know of the jobs are being cancelled."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background

    async def unless_cancelled(
        self, claim: Coroutine[None, None, list[store_pb2.ClaimedJob]]
    ) -> list[store_pb2.ClaimedJob]:
        """What the claim yields. A cancelled caller does not cancel it: its jobs are given back when it ends."""
        return await self._background.outlast(claim, self.give_back)

    def unless_answered(self, jobs: Jobs) -> None:
        """Gives back if the current task, which is about to answer these jobs, is cancelled before it ends.

        A cancel that comes when the answer is out already is not noticed; then the leases run out.
        """
        task = asyncio.current_task()
        if jobs and task is not None:
            # gRPC sends the answer in the handler's own task, and does not let its cancel out.
            task.add_done_callback(lambda done: self.give_back(jobs) if done.cancelling() else None)

    def give_back(self, jobs: Jobs) -> None:
        """Releases the leases, soon. If the engine does not answer they run out instead."""
        if jobs:
            metrics.undelivered.add(len(jobs))
        for start in range(0, len(jobs), limits.BATCH):
            self._background.start(self._release(jobs[start : start + limits.BATCH]))

    async def _release(self, jobs: Jobs) -> None:
        request = store_pb2.BatchSettleRequest()
        for job in jobs:
            request.settlements.add().release.lease.CopyFrom(lease_of(job))
        try:
            await self._store.batch_settle(request)
        except StoreError as error:
            _log.warning("undelivered jobs not given back", jobs=len(jobs), reason=error.reason_name)
