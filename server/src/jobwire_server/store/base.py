"""The store interface: what every backend does, in the contract's own messages.

`Store` holds what is the same for all backends: validation, what is drawn at random, which partition a job belongs to,
and how answers of several partitions are merged. A backend implements one method per verb, `_<verb>`, each of which
touches one partition only and is atomic.

Requests are never changed. Every method raises `StoreError` and nothing else for what the contract knows.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from . import limits, paging, validation
from .draw import Draw
from .errors import StoreError, not_found
from .prepare import Creation, partition_of, prepare
from .times import duration_ms, timestamp_ms

Outcome = store_pb2.CreateResponse | StoreError
SettleResponse = store_pb2.CompleteResponse | store_pb2.FailResponse | store_pb2.ReleaseResponse


class Claimed(NamedTuple):
    """What a claim on one partition yielded."""

    jobs: list[store_pb2.ClaimedJob]
    more: bool
    """Whether more jobs are ready in the asked queues."""


class Wish(NamedTuple):
    """What a claim asks of a partition."""

    queues: Sequence[tuple[str, str]]
    """(namespace, queue), looked at in this order."""
    max_jobs: int
    max_bytes: int
    """No more than fit, but at least one."""
    lease_ms: int
    """For jobs that ask for no lease of their own."""
    receipt_ms: int
    """How long the first heartbeat may take, if that is shorter than the lease; 0: as long as the lease."""
    worker_id: str
    token: str
    """The i-th job (from 0) gets the lease token `<token>-<i>`. A repeat within 10 s answers the same jobs."""
    waiting: bool
    """Register this replica as waiting for the queues, unless more jobs are ready there."""


class Sweep(NamedTuple):
    """What one slice of a sweep did, and when the next is due."""

    now_ms: int
    """The engine's clock."""
    next_ms: int
    """The next known deadline of the partition (run time, queue timeout, lease); 0: none."""
    more: bool
    """A slice was full: sweep again at once."""
    promoted: int
    expired: int
    removed: int
    reclaimed: list[tuple[str, str]]
    """(namespace, id) of the jobs whose leases ran out."""


class Held(Enum):
    """What became of a lease token."""

    HELD = 0
    SETTLED = 1
    LOST = 2


class NoticeKind(Enum):
    """What a notice is about."""

    READY = "ready"
    """A job became ready in the queue (namespace, name) of `partition`, and this replica was waiting for it."""
    SETTLED = "settled"
    """The lease token `name`, claimed through this replica, was settled through another."""
    CANCEL = "cancel"
    """Somebody asked to stop the job (namespace, name), whose lease was granted through this replica."""
    CHANGED = "changed"
    """The job (namespace, name), which this replica watches, has a new version or is gone."""
    RESUMED = "resumed"
    """Notices may have been lost: look at everything."""


class Notice(NamedTuple):
    """A hint from the engine to one replica. Never needed for correctness: any may be lost."""

    kind: NoticeKind
    partition: int = 0
    namespace: str = ""
    name: str = ""


class Store(ABC):
    """The job store. Safe to share between tasks; `close()` it when done.

    `replica` names this process to the engine, for notices. With `sweep_interval_ms` every verb first sweeps its
    partition when the last sweep by this object is older, so that a store used as a library needs no server; 0 turns
    that off.
    """

    def __init__(
        self,
        *,
        partitions: int = 1,
        draw: Draw | None = None,
        replica: str = "",
        sweep_interval_ms: int = limits.SWEEP_INTERVAL_MS,
    ) -> None:
        self.partitions = partitions
        self.draw = draw or Draw()
        self.replica = replica or self.draw.nonce()
        self._sweep_interval = sweep_interval_ms / 1_000
        self._swept = [0.0] * partitions
        self._next_partition = 0

    # -- create ------------------------------------------------------------------------------------------------------

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """Store.Create."""
        [outcome] = await self._create_all([request])
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def batch_create(self, request: store_pb2.BatchCreateRequest) -> store_pb2.BatchCreateResponse:
        """Store.BatchCreate."""
        validation.check_batch("requests", len(request.requests))
        return store_pb2.BatchCreateResponse(
            results=[
                store_pb2.BatchCreateResult(error=outcome.as_item())
                if isinstance(outcome, StoreError)
                else store_pb2.BatchCreateResult(response=outcome)
                for outcome in await self._create_all(request.requests)
            ]
        )

    async def _create_all(self, requests: Sequence[store_pb2.CreateRequest]) -> list[Outcome]:
        # Jobs with neither id nor key of one call share a partition: one script call.
        anywhere = self.draw.partition(self.partitions)
        outcomes: list[Outcome | None] = [None] * len(requests)
        groups: dict[int, list[tuple[int, Creation]]] = {}
        for index, request in enumerate(requests):
            try:
                creation = prepare(request, self.draw, self.partitions, anywhere)
            except StoreError as error:
                outcomes[index] = error
            else:
                groups.setdefault(creation.partition, []).append((index, creation))

        async def create(partition: int, group: list[tuple[int, Creation]]) -> None:
            await self._keep_swept(partition)
            created = await self._create(partition, [creation for _, creation in group])
            for (index, _), outcome in zip(group, created, strict=True):
                outcomes[index] = outcome

        await _gather([create(partition, group) for partition, group in groups.items()])
        return [outcome for outcome in outcomes if outcome is not None]

    # -- read --------------------------------------------------------------------------------------------------------

    async def get(self, request: store_pb2.GetRequest, *, watch: bool = False) -> store_pb2.GetResponse:
        """Store.Get, without waiting. With `watch`, this replica gets one CHANGED notice when the job changes next."""
        validation.check_get(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.id)
        await self._keep_swept(partition)
        full = request.view == job_pb2.JOB_VIEW_FULL
        [job] = await self._get(partition, namespace, [request.id], full, watch)
        if job is None:
            raise not_found(namespace, request.id)
        return store_pb2.GetResponse(job=job)

    async def batch_get(self, request: store_pb2.BatchGetRequest) -> store_pb2.BatchGetResponse:
        """Store.BatchGet."""
        validation.check_batch_get(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        full = request.view == job_pb2.JOB_VIEW_FULL
        groups: dict[int, list[str]] = {}
        for job_id in dict.fromkeys(request.ids):
            groups.setdefault(self.partition_of(namespace, job_id), []).append(job_id)
        found: dict[str, job_pb2.Job | None] = {}

        async def get(partition: int, ids: list[str]) -> None:
            await self._keep_swept(partition)
            # A backend may stop early when it has read one answer's worth of bytes.
            jobs = await self._get(partition, namespace, ids, full, False)
            found.update(zip(ids, jobs, strict=False))

        await _gather([get(partition, ids) for partition, ids in groups.items()])
        answer = store_pb2.BatchGetResponse()
        size = 0
        for job_id in request.ids:
            if job_id not in found:
                break
            result = store_pb2.BatchGetResult(id=job_id, job=found[job_id])
            size += result.ByteSize()
            if size > limits.ANSWER_BYTES and answer.results:
                break
            answer.results.append(result)
        return answer

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        """Store.Exists."""
        validation.check_exists(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.id)
        await self._keep_swept(partition)
        return store_pb2.ExistsResponse(exists=await self._exists(partition, namespace, request.id))

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        """Store.ListIds."""
        validation.check_list_ids(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        limit = request.limit or limits.PAGE_DEFAULT

        async def list_ids(partition: int) -> list[tuple[int, str]]:
            await self._keep_swept(partition)
            return await self._list_ids(partition, namespace, limit)

        lists = await _gather([list_ids(partition) for partition in range(self.partitions)])
        # Descending by time, then by the id's bytes, as the engine orders equal scores.
        merged = heapq.merge(*lists, key=lambda entry: (entry[0], entry[1].encode()), reverse=True)
        ids = [job_id for (_, job_id), _ in zip(merged, range(limit), strict=False)]
        return store_pb2.ListIdsResponse(ids=ids)

    async def list_children(self, request: store_pb2.ListChildrenRequest) -> store_pb2.ListChildrenResponse:
        """Store.ListChildren."""
        validation.check_list_children(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.parent_id)
        after = paging.children_cursor(request.page_token)
        await self._keep_swept(partition)
        jobs, cursor = await self._list_children(
            partition,
            namespace,
            request.parent_id,
            after,
            request.page_size or limits.PAGE_DEFAULT,
            request.view == job_pb2.JOB_VIEW_FULL,
        )
        return store_pb2.ListChildrenResponse(jobs=jobs, next_page_token=paging.children_token(cursor))

    # -- the owner's changes -----------------------------------------------------------------------------------------

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        """Store.Update."""
        validation.check_update(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.id)
        await self._keep_swept(partition)
        return store_pb2.UpdateResponse(job=await self._update(partition, namespace, request))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        """Store.Delete."""
        validation.check_delete(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.id)
        await self._keep_swept(partition)
        return store_pb2.DeleteResponse(existed=await self._delete(partition, namespace, request.id, request.etag))

    async def cancel(self, request: store_pb2.CancelRequest) -> store_pb2.CancelResponse:
        """Store.Cancel."""
        validation.check_cancel(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, request.id)
        await self._keep_swept(partition)
        grace_ms = duration_ms(request.grace) if request.HasField("grace") else limits.GRACE_DEFAULT_MS
        return await self._cancel(partition, namespace, request.id, request.reason, grace_ms)

    # -- claim and settle --------------------------------------------------------------------------------------------

    async def claim(self, request: store_pb2.ClaimRequest) -> store_pb2.ClaimResponse:
        """Store.Claim, without waiting: looks at every partition once, starting from another one each time."""
        validation.check_claim(request)
        wanted = request.max_jobs or 1
        answer = store_pb2.ClaimResponse()
        self._next_partition = (self._next_partition + 1) % self.partitions
        size = 0
        for step in range(self.partitions):
            partition = (self._next_partition + step) % self.partitions
            await self._keep_swept(partition)
            try:
                claimed = await self.claim_from(
                    partition, request, wanted - len(answer.jobs), limits.ANSWER_BYTES - size, waiting=False
                )
            except StoreError:
                if answer.jobs:  # their leases stand: an error in their place would cost each an attempt
                    break
                raise
            answer.jobs.extend(claimed.jobs)
            size += sum(job.ByteSize() for job in claimed.jobs)
            if len(answer.jobs) == wanted or size >= limits.ANSWER_BYTES // 2:
                break
        return answer

    async def claim_from(
        self,
        partition: int,
        request: store_pb2.ClaimRequest,
        max_jobs: int,
        max_bytes: int = limits.ANSWER_BYTES,
        *,
        receipt_ms: int = 0,
        waiting: bool,
    ) -> Claimed:
        """Claims from one partition (`request` must have passed `validation.check_claim`).

        At most `max_jobs`, and no more than fit `max_bytes`, but at least one. With `receipt_ms`, a lease lasts only
        that long until its first heartbeat. With `waiting`, registers this replica as waiting for the queues in the
        same step, unless more jobs are ready there.
        """
        return await self._claim(partition, self._wish(request, max_jobs, max_bytes, receipt_ms, waiting))

    async def hand_off(
        self, request: store_pb2.CreateRequest, claim: store_pb2.ClaimRequest, max_jobs: int, *, receipt_ms: int = 0
    ) -> tuple[Outcome, Claimed]:
        """`create`, and in the same step `claim_from` the new job's partition, for a caller that waits there.

        Whatever is next in line is claimed, the new job or another; also when the Create is refused, which is why its
        refusal is answered, not raised, unless the request is invalid.
        """
        creation = prepare(request, self.draw, self.partitions, self.draw.partition(self.partitions))
        await self._keep_swept(creation.partition)
        wish = self._wish(claim, max_jobs, limits.ANSWER_BYTES, receipt_ms, waiting=True)
        [outcome], claimed = await self._hand_off(creation.partition, [creation], wish)
        return outcome, claimed

    def _wish(
        self, request: store_pb2.ClaimRequest, max_jobs: int, max_bytes: int, receipt_ms: int, waiting: bool
    ) -> Wish:
        return Wish(
            queues=[(ref.namespace or limits.DEFAULT_NAMESPACE, ref.queue) for ref in request.queues],
            max_jobs=max_jobs,
            max_bytes=max_bytes,
            lease_ms=duration_ms(request.lease_duration) or limits.LEASE_DEFAULT_MS,
            receipt_ms=receipt_ms,
            worker_id=request.worker_id,
            token=self.draw.token(),
            waiting=waiting,
        )

    async def look(self, partition: int, queues: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether jobs are ready in each (namespace, queue); registers this replica as waiting for those without."""
        return await self._look(partition, queues)

    async def pass_on(self, partition: int, namespace: str, queue: str) -> None:
        """Sends a READY notice that came here, where nobody has a use for it, to the next waiting replica."""
        await self._pass_on(partition, namespace, queue)

    async def heartbeat(self, request: store_pb2.HeartbeatRequest) -> store_pb2.HeartbeatResponse:
        """Store.Heartbeat."""
        validation.check_heartbeat(request)
        groups: dict[int, list[int]] = {}
        for index, beat in enumerate(request.leases):
            groups.setdefault(self._partition_of_lease(beat.lease), []).append(index)
        results: dict[int, store_pb2.HeartbeatResult] = {}

        async def heartbeat(partition: int, indexes: list[int]) -> None:
            await self._keep_swept(partition)
            answers = await self._heartbeat(partition, [request.leases[index] for index in indexes])
            results.update(zip(indexes, answers, strict=True))

        await _gather([heartbeat(partition, indexes) for partition, indexes in groups.items()])
        return store_pb2.HeartbeatResponse(results=[results[index] for index in range(len(request.leases))])

    async def complete(self, request: store_pb2.CompleteRequest) -> store_pb2.CompleteResponse:
        """Store.Complete."""
        response = await self._settle_one(store_pb2.Settlement(complete=request))
        assert isinstance(response, store_pb2.CompleteResponse)
        return response

    async def fail(self, request: store_pb2.FailRequest) -> store_pb2.FailResponse:
        """Store.Fail."""
        response = await self._settle_one(store_pb2.Settlement(fail=request))
        assert isinstance(response, store_pb2.FailResponse)
        return response

    async def release(self, request: store_pb2.ReleaseRequest) -> store_pb2.ReleaseResponse:
        """Store.Release."""
        response = await self._settle_one(store_pb2.Settlement(release=request))
        assert isinstance(response, store_pb2.ReleaseResponse)
        return response

    async def batch_settle(self, request: store_pb2.BatchSettleRequest) -> store_pb2.BatchSettleResponse:
        """Store.BatchSettle."""
        validation.check_batch("settlements", len(request.settlements))
        answer = store_pb2.BatchSettleResponse()
        for outcome in await self._settle_all(request.settlements):
            result = answer.results.add()
            match outcome:
                case StoreError():
                    result.error.CopyFrom(outcome.as_item())
                case store_pb2.CompleteResponse():
                    result.complete.CopyFrom(outcome)
                case store_pb2.FailResponse():
                    result.fail.CopyFrom(outcome)
                case _:
                    result.release.CopyFrom(outcome)
        return answer

    async def _settle_one(self, settlement: store_pb2.Settlement) -> SettleResponse:
        [outcome] = await self._settle_all([settlement])
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def _settle_all(self, settlements: Sequence[store_pb2.Settlement]) -> list[SettleResponse | StoreError]:
        outcomes: dict[int, SettleResponse | StoreError] = {}
        groups: dict[int, list[int]] = {}
        for index, settlement in enumerate(settlements):
            try:
                lease = validation.check_settlement(settlement)
            except StoreError as error:
                outcomes[index] = error
            else:
                groups.setdefault(self._partition_of_lease(lease), []).append(index)

        async def settle(partition: int, indexes: list[int]) -> None:
            await self._keep_swept(partition)
            settled = await self._settle(partition, [settlements[index] for index in indexes])
            outcomes.update(zip(indexes, settled, strict=True))

        await _gather([settle(partition, indexes) for partition, indexes in groups.items()])
        return [outcomes[index] for index in range(len(settlements))]

    async def held(self, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]:
        """What became of these leases, extending none."""
        groups: dict[int, list[int]] = {}
        for index, lease in enumerate(leases):
            groups.setdefault(self._partition_of_lease(lease), []).append(index)
        states: dict[int, Held] = {}

        async def held(partition: int, indexes: list[int]) -> None:
            states.update(zip(indexes, await self._held(partition, [leases[i] for i in indexes]), strict=True))

        await _gather([held(partition, indexes) for partition, indexes in groups.items()])
        return [states[index] for index in range(len(leases))]

    # -- time --------------------------------------------------------------------------------------------------------

    async def sweep(self, partition: int) -> Sweep:
        """One slice of everything that time does to a partition: due jobs become ready, unclaimed ones expire, leases
        that ran out are reclaimed, records past their retention go. Idempotent; every replica does it.
        """
        self._swept[partition] = time.monotonic()
        return await self._sweep(partition)

    async def reclaim_stale(self, request: store_pb2.ReclaimStaleRequest) -> store_pb2.ReclaimStaleResponse:
        """Store.ReclaimStale."""
        validation.check_reclaim_stale(request)
        before = timestamp_ms(request.heartbeat_before) if request.HasField("heartbeat_before") else None
        left = request.page_size or limits.PAGE_DEFAULT
        partition, cursor = paging.reclaim_cursor(request.page_token, self.partitions)
        answer = store_pb2.ReclaimStaleResponse()
        while left > 0 and partition < self.partitions:
            looked, reclaimed, cursor = await self._reclaim_stale(partition, before, cursor, left)
            answer.reclaimed.extend(
                store_pb2.LeaseRef(namespace=namespace, id=job_id) for namespace, job_id in reclaimed
            )
            left -= looked
            if not cursor:
                partition += 1
        if partition < self.partitions:
            answer.next_page_token = paging.reclaim_token(partition, cursor)
        return answer

    # -- queues ------------------------------------------------------------------------------------------------------

    async def list_queues(self, request: admin_pb2.ListQueuesRequest) -> admin_pb2.ListQueuesResponse:
        """Admin.ListQueues."""
        validation.check_list_queues(request)
        after = paging.queue_cursor(request.page_token)
        limit = request.page_size or limits.PAGE_DEFAULT
        names: set[tuple[str, str]] = set()
        for found in await _gather([self._list_queues(partition) for partition in range(self.partitions)]):
            names.update(found)
        wanted = sorted(name for name in names if name > after and request.namespace in ("", name[0]))
        page = wanted[:limit]
        answer = admin_pb2.ListQueuesResponse(queues=await _gather([self._queue(*name) for name in page]))
        if len(wanted) > limit:
            answer.next_page_token = paging.queue_token(page[-1])
        return answer

    async def get_queue(self, request: admin_pb2.GetQueueRequest) -> admin_pb2.GetQueueResponse:
        """Admin.GetQueue."""
        validation.check_get_queue(request)
        namespace = request.ref.namespace or limits.DEFAULT_NAMESPACE
        return admin_pb2.GetQueueResponse(queue=await self._queue(namespace, request.ref.queue))

    async def _queue(self, namespace: str, queue: str) -> admin_pb2.Queue:
        parts = await _gather([self._queue_stats(partition, namespace, queue) for partition in range(self.partitions)])
        total = admin_pb2.QueueStats(
            ready=sum(part.ready for part in parts),
            scheduled=sum(part.scheduled for part in parts),
            running=sum(part.running for part in parts),
        )
        oldest = [part.oldest_ready_time for part in parts if part.HasField("oldest_ready_time")]
        if oldest:
            total.oldest_ready_time.CopyFrom(min(oldest, key=timestamp_ms))
        return admin_pb2.Queue(
            ref=store_pb2.QueueRef(namespace=namespace, queue=queue),
            settings=admin_pb2.QueueSettings(),
            stats=total,
        )

    # -- helpers of the verbs ----------------------------------------------------------------------------------------

    def partition_of(self, namespace: str, job_id: str) -> int:
        """The partition of a job's family."""
        return partition_of(namespace, job_id, self.partitions)

    def _partition_of_lease(self, lease: store_pb2.LeaseRef) -> int:
        return self.partition_of(lease.namespace or limits.DEFAULT_NAMESPACE, lease.id)

    async def _keep_swept(self, partition: int) -> None:
        if self._sweep_interval and time.monotonic() - self._swept[partition] >= self._sweep_interval:
            await self.sweep(partition)

    # -- what a backend implements: one atomic step on one partition each ---------------------------------------------

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


_T = TypeVar("_T")


async def _gather(work: Sequence[Coroutine[None, None, _T]]) -> list[_T]:
    """Runs the work of several partitions side by side; of one, without a task of its own."""
    if len(work) == 1:
        return [await work[0]]
    return await asyncio.gather(*work)
