"""`MemoryStore`: the whole interface in one process, without an engine."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.draw import Draw
from jobwire_server.store.errors import StoreError
from jobwire_server.store.prepare import Creation
from jobwire_server.store.types import (
    Audit,
    Claimed,
    Held,
    Notice,
    NoticeKind,
    Outcome,
    Repair,
    SettleResponse,
    Sweep,
    Wish,
)

from . import claim, create, read, remove, repair, settle, sweep, update
from .partition import State
from .step import Step


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000


class MemoryStore(Store):
    """A store that lives and dies with its process. `clock` answers the time in ms, by default the wall clock's.

    A step never awaits, so each is atomic among the tasks of one event loop; not safe to share between threads.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] = wall_clock,
        partitions: int = 1,
        draw: Draw | None = None,
        replica: str = "",
        sweep_interval_ms: int = limits.SWEEP_INTERVAL_MS,
    ) -> None:
        super().__init__(partitions=partitions, draw=draw, replica=replica, sweep_interval_ms=sweep_interval_ms)
        self._state = State(clock, partitions)

    def sibling(self, replica: str = "", *, sweep_interval_ms: int = limits.SWEEP_INTERVAL_MS) -> MemoryStore:
        """Another replica over the same state, clock and draws."""
        other = MemoryStore(
            clock=self._state.clock,
            partitions=self.partitions,
            draw=self.draw,
            replica=replica,
            sweep_interval_ms=sweep_interval_ms,
        )
        other._state = self._state
        return other

    def _step(self, partition: int) -> Step:
        return Step(self._state, partition, self.replica)

    async def _create(self, partition: int, creations: Sequence[Creation]) -> list[Outcome]:
        with self._step(partition) as step:
            return [create.create(step, creation) for creation in creations]

    async def _hand_off(
        self, partition: int, creations: Sequence[Creation], wish: Wish
    ) -> tuple[list[Outcome], Claimed]:
        with self._step(partition) as step:
            return [create.create(step, creation) for creation in creations], claim.claim(step, wish)

    async def _get(
        self, partition: int, namespace: str, ids: Sequence[str], full: bool, watch: bool
    ) -> list[job_pb2.Job | None]:
        with self._step(partition) as step:
            return [read.get(step, (namespace, job_id), full=full, watch=watch) for job_id in ids]

    async def _exists(self, partition: int, namespace: str, job_id: str) -> bool:
        with self._step(partition) as step:
            return step.find((namespace, job_id)) is not None

    async def _list_ids(self, partition: int, namespace: str, limit: int) -> list[tuple[int, str]]:
        with self._step(partition) as step:
            return read.list_ids(step, namespace, limit)

    async def _list_children(
        self, partition: int, namespace: str, parent_id: str, after: tuple[int, str], limit: int, full: bool
    ) -> tuple[list[job_pb2.Job], tuple[int, str] | None]:
        with self._step(partition) as step:
            return read.list_children(step, (namespace, parent_id), after, limit, full=full)

    async def _update(self, partition: int, namespace: str, request: store_pb2.UpdateRequest) -> job_pb2.Job:
        with self._step(partition) as step:
            return update.update(step, (namespace, request.id), request)

    async def _delete(self, partition: int, namespace: str, job_id: str, etag: str) -> bool:
        with self._step(partition) as step:
            return remove.delete(step, (namespace, job_id), etag)

    async def _cancel(
        self, partition: int, namespace: str, job_id: str, reason: str, grace_ms: int
    ) -> store_pb2.CancelResponse:
        with self._step(partition) as step:
            return remove.cancel(step, (namespace, job_id), reason, grace_ms)

    async def _claim(self, partition: int, wish: Wish) -> Claimed:
        with self._step(partition) as step:
            return claim.claim(step, wish)

    async def _look(self, partition: int, queues: Sequence[tuple[str, str]]) -> list[bool]:
        with self._step(partition) as step:
            return claim.look(step, queues)

    async def _pass_on(self, partition: int, namespace: str, queue: str) -> None:
        with self._step(partition) as step:
            claim.pass_on(step, (namespace, queue))

    async def _heartbeat(
        self, partition: int, leases: Sequence[store_pb2.LeaseHeartbeat]
    ) -> list[store_pb2.HeartbeatResult]:
        with self._step(partition) as step:
            return [settle.heartbeat(step, beat) for beat in leases]

    async def _settle(
        self, partition: int, settlements: Sequence[store_pb2.Settlement]
    ) -> list[SettleResponse | StoreError]:
        with self._step(partition) as step:
            return [settle.settle(step, settlement) for settlement in settlements]

    async def _held(self, partition: int, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]:
        with self._step(partition) as step:
            return [settle.held(step, lease) for lease in leases]

    async def _sweep(self, partition: int) -> Sweep:
        with self._step(partition) as step:
            return sweep.sweep(step)

    async def _reclaim_stale(
        self, partition: int, before_ms: int | None, cursor: str, limit: int
    ) -> tuple[int, list[tuple[str, str]], str]:
        with self._step(partition) as step:
            return sweep.reclaim_stale(step, before_ms, cursor, limit)

    async def _audit(self, partition: int, cursor: str) -> Audit:
        with self._step(partition) as step:
            return repair.audit(step)

    async def _repair(self, partition: int, cursor: str) -> Repair:
        with self._step(partition) as step:
            return repair.repair(step)

    async def _list_queues(self, partition: int) -> list[tuple[str, str]]:
        with self._step(partition) as step:
            return read.list_queues(step)

    async def _queue_stats(self, partition: int, namespace: str, queue: str) -> admin_pb2.QueueStats:
        with self._step(partition) as step:
            return read.queue_stats(step, namespace, queue)

    async def ping(self) -> None:
        """Memory is always there."""

    async def notices(self) -> AsyncGenerator[Notice, None]:
        """As `Store.notices`."""
        mailbox = self._state.listen(self.replica)
        try:
            yield Notice(NoticeKind.RESUMED)
            while True:
                yield await mailbox.get()
        finally:
            self._state.unlisten(self.replica)

    async def close(self) -> None:
        """Nothing to let go of."""
