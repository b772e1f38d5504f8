"""The store interface: what every backend does, in the contract's own messages.

`Store` holds what is the same for all backends: validation, what is drawn at random, which partition a job belongs to,
and how answers of several partitions are merged. What a backend implements, one atomic step on one partition per verb,
is in `backend`.

Requests are never changed. Every method raises `StoreError` and nothing else for what the contract knows.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from . import limits, paging, validation
from .backend import Backend
from .draw import Draw
from .errors import StoreError, not_found
from .observer import Observer
from .prepare import Creation, partition_of, prepare
from .times import duration_ms, timestamp_ms
from .types import Audit, Claimed, Held, Outcome, Repair, SettleResponse, Sweep, Wish

_T = TypeVar("_T")


class Store(Backend):
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
        self.engine = "memory"
        """What keeps the jobs, with its version."""
        self.warnings: Sequence[str] = ()
        """What an operator should know of it."""
        self.draw = draw or Draw()
        self.replica = replica or self.draw.nonce()
        self.observer = Observer()
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
        """Store.BatchCreate. The later jobs of an answer that would not fit one message are cut down to their names."""
        validation.check_batch("requests", len(request.requests))
        answer = store_pb2.BatchCreateResponse()
        size = 0
        for outcome in await self._create_all(request.requests):
            if isinstance(outcome, StoreError):
                answer.results.add(error=outcome.as_item())
                continue
            size += outcome.ByteSize()
            if size > limits.ANSWER_BYTES // 2:
                name = job_pb2.Job(namespace=outcome.job.namespace, id=outcome.job.id)
                outcome = store_pb2.CreateResponse(  # noqa: PLW2901 - the same, cut down
                    job=name, created=outcome.created, durability=outcome.durability
                )
            answer.results.add(response=outcome)
        return answer

    async def _create_all(self, requests: Sequence[store_pb2.CreateRequest]) -> list[Outcome]:
        # Jobs with neither id nor key of one call share a partition: one script call.
        anywhere = self.draw.partition(self.partitions)
        prepared: list[Creation | StoreError] = []
        for request in requests:
            try:
                prepared.append(prepare(request, self.draw, self.partitions, anywhere))
            except StoreError as error:
                prepared.append(error)
        creations = {index: item for index, item in enumerate(prepared) if isinstance(item, Creation)}
        created = await self._by_partition(
            [creations[index].partition if index in creations else None for index in range(len(prepared))],
            lambda partition, indexes: self._create(partition, [creations[index] for index in indexes]),
        )
        return [item if isinstance(item, StoreError) else created[index] for index, item in enumerate(prepared)]

    # -- read --------------------------------------------------------------------------------------------------------

    async def get(self, request: store_pb2.GetRequest, *, watch: bool = False) -> store_pb2.GetResponse:
        """Store.Get, without waiting. With `watch`, this replica gets one CHANGED notice when the job changes next."""
        validation.check_get(request)
        partition, namespace = await self._at(request.namespace, request.id)
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
        ids = list(dict.fromkeys(request.ids))
        # A backend may stop early when it has read one answer's worth of bytes.
        read = await self._by_partition(
            [self.partition_of(namespace, job_id) for job_id in ids],
            lambda partition, indexes: self._get(partition, namespace, [ids[index] for index in indexes], full, False),
        )
        found = {ids[index]: job for index, job in read.items()}
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
        partition, namespace = await self._at(request.namespace, request.id)
        return store_pb2.ExistsResponse(exists=await self._exists(partition, namespace, request.id))

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        """Store.ListIds."""
        validation.check_list_ids(request)
        namespace = request.namespace or limits.DEFAULT_NAMESPACE
        limit = request.limit or limits.PAGE_DEFAULT

        async def list_ids(partition: int) -> list[tuple[int, str]]:
            await self._keep_swept(partition)
            return await self._list_ids(partition, namespace, limit)

        lists = await gather([list_ids(partition) for partition in range(self.partitions)])
        # Descending by time, then by the id's bytes, as the engine orders equal scores.
        merged = heapq.merge(*lists, key=lambda entry: (entry[0], entry[1].encode()), reverse=True)
        ids = [job_id for (_, job_id), _ in zip(merged, range(limit), strict=False)]
        return store_pb2.ListIdsResponse(ids=ids)

    async def list_children(self, request: store_pb2.ListChildrenRequest) -> store_pb2.ListChildrenResponse:
        """Store.ListChildren."""
        validation.check_list_children(request)
        after = paging.children_cursor(request.page_token)
        partition, namespace = await self._at(request.namespace, request.parent_id)
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
        partition, namespace = await self._at(request.namespace, request.id)
        return store_pb2.UpdateResponse(job=await self._update(partition, namespace, request))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        """Store.Delete."""
        validation.check_delete(request)
        partition, namespace = await self._at(request.namespace, request.id)
        return store_pb2.DeleteResponse(existed=await self._delete(partition, namespace, request.id, request.etag))

    async def cancel(self, request: store_pb2.CancelRequest) -> store_pb2.CancelResponse:
        """Store.Cancel."""
        validation.check_cancel(request)
        partition, namespace = await self._at(request.namespace, request.id)
        grace_ms = duration_ms(request.grace) if request.HasField("grace") else limits.GRACE_DEFAULT_MS
        return await self._cancel(partition, namespace, request.id, request.reason, grace_ms)

    # -- claim and settle --------------------------------------------------------------------------------------------

    async def claim(self, request: store_pb2.ClaimRequest) -> store_pb2.ClaimResponse:
        """Store.Claim, without waiting: looks at every partition once, starting from another one each time."""
        validation.check_claim(request)
        wanted = request.max_jobs or 1
        answer = store_pb2.ClaimResponse()
        # Kept apart from the attribute, which other claims move on while this one waits: none is passed over.
        first = self._next_partition = (self._next_partition + 1) % self.partitions
        left = limits.ANSWER_BYTES
        for step in range(self.partitions):
            partition = (first + step) % self.partitions
            more = True
            while more and len(answer.jobs) < wanted and left >= limits.ANSWER_BYTES // 2:
                try:
                    await self._keep_swept(partition)
                    jobs, more, _ = await self.claim_from(
                        partition, request, wanted - len(answer.jobs), left, waiting=False
                    )
                except StoreError:
                    if answer.jobs:  # their leases stand: an error in their place would cost each an attempt
                        return answer
                    raise
                answer.jobs.extend(jobs)
                left -= sum(job.ByteSize() for job in jobs)
                more = more and bool(jobs)
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

        At most `max_jobs` (and `limits.SCRIPT_SLICE`), and no more than fit `max_bytes`, but at least one. With
        `receipt_ms`, a lease lasts only that long until its first heartbeat. With `waiting`, registers this replica as
        waiting for the queues in the same step, unless more jobs are ready there.
        """
        claimed = await self._claim(partition, self._wish(request, max_jobs, max_bytes, receipt_ms, waiting))
        if claimed.jobs:
            self.observer.claimed(claimed.waited_ms)
        return claimed

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
        if claimed.jobs:
            self.observer.claimed(claimed.waited_ms)
        return outcome, claimed

    def _wish(
        self, request: store_pb2.ClaimRequest, max_jobs: int, max_bytes: int, receipt_ms: int, waiting: bool
    ) -> Wish:
        return Wish(
            queues=[(ref.namespace or limits.DEFAULT_NAMESPACE, ref.queue) for ref in request.queues],
            max_jobs=min(max_jobs, limits.SCRIPT_SLICE),
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
        results = await self._by_partition(
            [self._partition_of_lease(beat.lease) for beat in request.leases],
            lambda partition, indexes: self._heartbeat(partition, [request.leases[index] for index in indexes]),
        )
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
        refused: dict[int, StoreError] = {}
        partitions: list[int | None] = []
        for index, settlement in enumerate(settlements):
            try:
                partitions.append(self._partition_of_lease(validation.check_settlement(settlement)))
            except StoreError as error:
                refused[index] = error
                partitions.append(None)
        settled = await self._by_partition(
            partitions,
            lambda partition, indexes: self._settle(partition, [settlements[index] for index in indexes]),
        )
        return [refused.get(index) or settled[index] for index in range(len(settlements))]

    async def held(self, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]:
        """What became of these leases, extending none."""
        states = await self._by_partition(
            [self._partition_of_lease(lease) for lease in leases],
            lambda partition, indexes: self._held(partition, [leases[index] for index in indexes]),
        )
        return [states[index] for index in range(len(leases))]

    # -- time --------------------------------------------------------------------------------------------------------

    async def sweep(self, partition: int) -> Sweep:
        """One slice of everything that time does to a partition: due jobs become ready, unclaimed ones expire, leases
        that ran out are reclaimed, records past their retention go. Idempotent; every replica does it.
        """
        self._swept[partition] = time.monotonic()
        swept = await self._sweep(partition)
        self.observer.swept(swept)
        return swept

    async def reclaim_stale(self, request: store_pb2.ReclaimStaleRequest) -> store_pb2.ReclaimStaleResponse:
        """Store.ReclaimStale."""
        validation.check_reclaim_stale(request)
        before = timestamp_ms(request.heartbeat_before) if request.HasField("heartbeat_before") else None
        left = request.page_size or limits.PAGE_DEFAULT
        partition, cursor = paging.reclaim_cursor(request.page_token, self.partitions)
        answer = store_pb2.ReclaimStaleResponse()
        while left > 0 and partition < self.partitions:
            looked, reclaimed, cursor = await self._reclaim_stale(partition, before, cursor, left)
            self.observer.reclaimed(len(reclaimed))
            answer.reclaimed.extend(
                store_pb2.LeaseRef(namespace=namespace, id=job_id) for namespace, job_id in reclaimed
            )
            left -= looked
            if not cursor:
                partition += 1
        if partition < self.partitions:
            answer.next_page_token = paging.reclaim_token(partition, cursor)
        return answer

    async def audit(self, partition: int, cursor: str = "") -> Audit:
        """Whether a partition's counters agree with its indexes (rule 9); a slice of its queues at a time."""
        return await self._audit(partition, cursor)

    async def repair(self, partition: int, cursor: str = "") -> Repair:
        """One slice of a walk that mends what an eviction, a restored backup or a hand left behind: every record is put
        into the indexes that its state asks for, entries without their job are dropped, counters are counted anew.

        Safe while everything goes on, and on several replicas at once: of these one walks. Counts of children are left
        alone: they speak of children that may be gone by right.
        """
        return await self._repair(partition, cursor)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def list_queues(self, request: admin_pb2.ListQueuesRequest) -> admin_pb2.ListQueuesResponse:
        """Admin.ListQueues."""
        validation.check_list_queues(request)
        after = paging.queue_cursor(request.page_token)
        limit = request.page_size or limits.PAGE_DEFAULT
        names: set[tuple[str, str]] = set()
        for found in await gather([self._list_queues(partition) for partition in range(self.partitions)]):
            names.update(found)
        wanted = sorted(name for name in names if name > after and request.namespace in ("", name[0]))
        page = wanted[:limit]
        answer = admin_pb2.ListQueuesResponse(queues=await gather([self._queue(*name) for name in page]))
        if len(wanted) > limit:
            answer.next_page_token = paging.queue_token(page[-1])
        return answer

    async def get_queue(self, request: admin_pb2.GetQueueRequest) -> admin_pb2.GetQueueResponse:
        """Admin.GetQueue."""
        validation.check_get_queue(request)
        namespace = request.ref.namespace or limits.DEFAULT_NAMESPACE
        return admin_pb2.GetQueueResponse(queue=await self._queue(namespace, request.ref.queue))

    async def _queue(self, namespace: str, queue: str) -> admin_pb2.Queue:
        parts = await gather([self._queue_stats(partition, namespace, queue) for partition in range(self.partitions)])
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

    async def _at(self, namespace: str, job_id: str) -> tuple[int, str]:
        """The partition of a job, swept if it is time, and the namespace."""
        namespace = namespace or limits.DEFAULT_NAMESPACE
        partition = self.partition_of(namespace, job_id)
        await self._keep_swept(partition)
        return partition, namespace

    async def _by_partition(
        self,
        partitions: Sequence[int | None],
        work: Callable[[int, Sequence[int]], Coroutine[None, None, Sequence[_T]]],
    ) -> dict[int, _T]:
        """Does something for items of several partitions, each partition's at once: `work` gets the partition and the
        indexes of its items. The answers by index; items without a partition have none.
        """
        groups: dict[int, list[int]] = {}
        for index, partition in enumerate(partitions):
            if partition is not None:
                groups.setdefault(partition, []).append(index)
        answers: dict[int, _T] = {}

        async def do(partition: int, indexes: Sequence[int]) -> None:
            await self._keep_swept(partition)
            # Of a list that is cut short, the rest has no answer.
            answers.update(zip(indexes, await work(partition, indexes), strict=False))

        await gather([do(partition, indexes) for partition, indexes in groups.items()])
        return answers

    async def _keep_swept(self, partition: int) -> None:
        if self._sweep_interval and time.monotonic() - self._swept[partition] >= self._sweep_interval:
            await self.sweep(partition)


async def gather(work: Sequence[Coroutine[None, None, _T]]) -> list[_T]:
    """Runs the work of several partitions side by side; of one, without a task of its own.

    Waits for all of it, also when some fails: nothing goes on behind a caller who was told of an error.
    """
    if len(work) == 1:
        return [await work[0]]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    answers: list[_T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
