"""What a backend implements: one atomic step on one partition per verb. `Store` (in `base`) is made of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from .errors import StoreError
from .prepare import Creation
from .types import Audit, Claimed, Held, Notice, Outcome, Repair, SettleResponse, Sweep, Wish


class Backend(ABC):
    """Requests have been validated, namespaces filled in, ids drawn."""

    @abstractmethod
    async def _create(self, partition: int, creations: Sequence[Creation]) -> list[Outcome]: ...

    @abstractmethod
    async def _hand_off(
        self, partition: int, creations: Sequence[Creation], wish: Wish
    ) -> tuple[list[Outcome], Claimed]:
        """`_create`, then `_claim`, in one step."""

    @abstractmethod
    async def _get(
        self, partition: int, namespace: str, ids: Sequence[str], full: bool, watch: bool
    ) -> list[job_pb2.Job | None]:
        """May answer fewer than asked, at least one, when the read bytes pass `limits.ANSWER_BYTES`."""

    @abstractmethod
    async def _exists(self, partition: int, namespace: str, job_id: str) -> bool: ...

    @abstractmethod
    async def _list_ids(self, partition: int, namespace: str, limit: int) -> list[tuple[int, str]]:
        """(create time, id), descending; expired ones left out."""

    @abstractmethod
    async def _list_children(
        self, partition: int, namespace: str, parent_id: str, after: tuple[int, str], limit: int, full: bool
    ) -> tuple[list[job_pb2.Job], tuple[int, str] | None]:
        """Children after the cursor (create time, id), and the cursor of the last one looked at, None at the end."""

    @abstractmethod
    async def _update(self, partition: int, namespace: str, request: store_pb2.UpdateRequest) -> job_pb2.Job: ...

    @abstractmethod
    async def _delete(self, partition: int, namespace: str, job_id: str, etag: str) -> bool: ...

    @abstractmethod
    async def _cancel(
        self, partition: int, namespace: str, job_id: str, reason: str, grace_ms: int
    ) -> store_pb2.CancelResponse: ...

    @abstractmethod
    async def _claim(self, partition: int, wish: Wish) -> Claimed: ...

    @abstractmethod
    async def _look(self, partition: int, queues: Sequence[tuple[str, str]]) -> list[bool]: ...

    @abstractmethod
    async def _pass_on(self, partition: int, namespace: str, queue: str) -> None:
        """As if one job of the queue had become ready, if any is."""

    @abstractmethod
    async def _heartbeat(
        self, partition: int, leases: Sequence[store_pb2.LeaseHeartbeat]
    ) -> list[store_pb2.HeartbeatResult]: ...

    @abstractmethod
    async def _settle(
        self, partition: int, settlements: Sequence[store_pb2.Settlement]
    ) -> list[SettleResponse | StoreError]: ...

    @abstractmethod
    async def _held(self, partition: int, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]: ...

    @abstractmethod
    async def _sweep(self, partition: int) -> Sweep: ...

    @abstractmethod
    async def _reclaim_stale(
        self, partition: int, before_ms: int | None, cursor: str, limit: int
    ) -> tuple[int, list[tuple[str, str]], str]:
        """Looks at up to `limit` leases after the cursor; how many it looked at, whose it took, the new cursor ("": no
        more).
        """

    @abstractmethod
    async def _audit(self, partition: int, cursor: str) -> Audit: ...

    @abstractmethod
    async def _repair(self, partition: int, cursor: str) -> Repair: ...

    @abstractmethod
    async def _list_queues(self, partition: int) -> list[tuple[str, str]]: ...

    @abstractmethod
    async def _queue_stats(self, partition: int, namespace: str, queue: str) -> admin_pb2.QueueStats: ...

    # -- the backend itself ------------------------------------------------------------------------------------------

    @abstractmethod
    async def ping(self) -> None:
        """Returns if the engine takes writes; else raises `StoreError` (ENGINE_UNAVAILABLE or ENGINE_FULL)."""

    @abstractmethod
    def notices(self) -> AsyncGenerator[Notice, None]:
        """The notices for this replica, without end; first a RESUMED once it listens. One reader at a time."""

    @abstractmethod
    async def close(self) -> None:
        """Lets go of connections. Idempotent."""
