"""The verbs whose outcome wakes somebody, or that wait: the store's own, and what this replica has to note of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits, validation
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError, draining
from jobwire_server.store.times import duration_ms, timestamp_ms
from jobwire_server.store.types import Held

from . import metrics
from .background import Background
from .credit import Ledger
from .gauges import Gauges
from .hub import Hub
from .notices import Notices
from .sessions import Sessions
from .stream import ClaimStream, Write, in_messages
from .timers import Timer
from .undelivered import Undelivered
from .upkeep import Upkeep
from .watches import Watches

_DELAYED = {job_pb2.WAIT_REASON_SCHEDULED, job_pb2.WAIT_REASON_BACKOFF}
# After these a client has no use for its lease any more.
_LEASE_GONE = {job_pb2.ERROR_REASON_LEASE_LOST, job_pb2.ERROR_REASON_JOB_NOT_FOUND}

# How long, at the end, an engine may take for what was begun before.
_FINISH_SECONDS = 1.0

_Request = TypeVar("_Request", store_pb2.CompleteRequest, store_pb2.FailRequest, store_pb2.ReleaseRequest)
_Response = TypeVar("_Response")


class Dispatch:
    """Made inside a running event loop and used there. Every verb raises `StoreError`, as the store's does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._background = Background()
        self._undelivered = Undelivered(store, self._background)
        self._hub = Hub(store, self._undelivered, self._background)
        self._ledger = Ledger(store)
        self._watches = Watches(store)
        self._sessions = Sessions()
        store.observer = measuring = metrics.Measuring()
        self._gauges = Gauges(store, self._ledger, measuring)
        self._timers = [Timer(partition, store, self._hub) for partition in range(store.partitions)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Timers and notices run for the extent of the context; at its end, what was not delivered is given back."""
        notices = Notices(self._store, self._hub, self._ledger, self._watches, self._background)
        work = [notices.follow_for_ever(), self._ledger.check_for_ever(), *(t.run_for_ever() for t in self._timers)]
        work += [Upkeep(self._store).run_for_ever(), self._gauges.follow_for_ever()]
        tasks = [asyncio.create_task(part) for part in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._background.finish(_FINISH_SECONDS)

    def drain(self) -> None:
        """Ends streams and waiting calls, and takes no new ones."""
        self._hub.drain()
        self._watches.drain()

    # -- create, change, read ----------------------------------------------------------------------------------------

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """Store.Create."""
        outcome = await self._hub.hand_off(request)
        if isinstance(outcome, StoreError):
            raise outcome
        response = outcome or await self._store.create(request)
        if not response.created:
            metrics.dedup_hits.add(1)
        self._arm_for(response.job)
        return response

    async def batch_create(self, request: store_pb2.BatchCreateRequest) -> store_pb2.BatchCreateResponse:
        """Store.BatchCreate."""
        response = await self._store.batch_create(request)
        repeats = sum(result.HasField("response") and not result.response.created for result in response.results)
        if repeats:
            metrics.dedup_hits.add(repeats)
        for result in response.results:
            self._arm_for(result.response.job)
        return response

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        """Store.Update."""
        response = await self._store.update(request)
        self._arm_for(response.job)
        return response

    async def cancel(self, request: store_pb2.CancelRequest) -> store_pb2.CancelResponse:
        """Store.Cancel."""
        response = await self._store.cancel(request)
        if response.outcome == store_pb2.CANCEL_OUTCOME_REQUESTED:
            # Both by the engine's clock, near enough: the revocation is due no later than this.
            cancel, job = response.job.cancel, response.job
            seconds = (timestamp_ms(cancel.deadline) - timestamp_ms(job.update_time)) / 1_000
            self._timers[self._store.partition_of(job.namespace, job.id)].arm(seconds)
        return response

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        """Store.Get, waiting as it asks."""
        return await (self._watches.get(request) if duration_ms(request.wait) > 0 else self._store.get(request))

    # -- claim -------------------------------------------------------------------------------------------------------

    async def claim(self, request: store_pb2.ClaimRequest) -> store_pb2.ClaimResponse:
        """Store.Claim, waiting as it asks."""
        if self._hub.is_draining:
            raise draining()
        loop = asyncio.get_running_loop()
        until = loop.time() + duration_ms(request.wait) / 1_000
        jobs = await self._undelivered.unless_cancelled(self._claim_now(request))
        if not jobs and loop.time() < until:
            with self._hub.listening(request) as listener:
                while not jobs and loop.time() < until:
                    jobs = await listener.take(request.max_jobs or 1, until)
                    if not jobs and self._hub.is_draining:
                        raise draining()
        fitting = next(in_messages(jobs), [])
        self._undelivered.give_back(jobs[len(fitting) :])
        self._undelivered.unless_answered(fitting)
        return store_pb2.ClaimResponse(jobs=fitting)

    async def claim_stream(self, request: store_pb2.ClaimStreamRequest, write: Write) -> None:
        """Store.ClaimStream. Ends when the server drains, or as a write or the caller's cancel ends it."""
        validation.check_claim_stream(request)
        claim = store_pb2.ClaimRequest(
            queues=request.queues, worker_id=request.worker_id, lease_duration=request.lease_duration
        )
        with self._hub.listening(claim, duration_ms(request.receipt_timeout)) as listener:
            stream = ClaimStream(request, write, listener, self._ledger, self._undelivered)
            self._gauges.streams += 1
            try:
                with self._sessions.opened(request.session_id, request.epoch, stream.account):
                    await stream.run(await self._still_held(request.held))
            finally:
                self._gauges.streams -= 1

    # -- heartbeat and settle ----------------------------------------------------------------------------------------

    async def heartbeat(self, request: store_pb2.HeartbeatRequest) -> store_pb2.HeartbeatResponse:
        """Store.Heartbeat."""
        response = await self._store.heartbeat(request)
        lost = 0
        for beat, result in zip(request.leases, response.results, strict=True):
            gone = result.state == store_pb2.LEASE_STATE_LOST
            lost += gone
            self._ledger.heard(beat.lease.token, gone=gone)
        if lost:
            metrics.leases_lost.add(lost)
        return response

    async def complete(self, request: store_pb2.CompleteRequest) -> store_pb2.CompleteResponse:
        """Store.Complete."""
        return await self._settle(self._store.complete, request)

    async def fail(self, request: store_pb2.FailRequest) -> store_pb2.FailResponse:
        """Store.Fail."""
        response = await self._settle(self._store.fail, request)
        self._arm_after(request)
        return response

    async def release(self, request: store_pb2.ReleaseRequest) -> store_pb2.ReleaseResponse:
        """Store.Release."""
        response = await self._settle(self._store.release, request)
        self._arm_after(request)
        return response

    async def batch_settle(self, request: store_pb2.BatchSettleRequest) -> store_pb2.BatchSettleResponse:
        """Store.BatchSettle."""
        response = await self._store.batch_settle(request)
        fenced = 0
        for settlement, result in zip(request.settlements, response.results, strict=True):
            refused = result.HasField("error")
            gone = not refused or result.error.reason in _LEASE_GONE
            fenced += refused and result.error.reason == job_pb2.ERROR_REASON_LEASE_LOST
            self._ledger.heard(_lease_of(settlement).token, gone=gone)
            if not refused:
                self._arm_after(settlement.fail)
                self._arm_after(settlement.release)
        if fenced:
            metrics.fenced_writes.add(fenced)
        return response

    async def _settle(self, verb: Callable[[_Request], Awaitable[_Response]], request: _Request) -> _Response:
        try:
            response = await verb(request)
        except StoreError as error:
            if error.reason == job_pb2.ERROR_REASON_LEASE_LOST:
                metrics.fenced_writes.add(1)
            self._ledger.heard(request.lease.token, gone=error.reason in _LEASE_GONE)
            raise
        self._ledger.heard(request.lease.token, gone=True)
        return response

    # -- parts -------------------------------------------------------------------------------------------------------

    async def _claim_now(self, request: store_pb2.ClaimRequest) -> list[store_pb2.ClaimedJob]:
        return list((await self._store.claim(request)).jobs)

    async def _still_held(self, leases: Sequence[store_pb2.LeaseRef]) -> list[store_pb2.LeaseRef]:
        if not leases:
            return []
        states = await self._store.held(leases)
        return [lease for lease, state in zip(leases, states, strict=True) if state is Held.HELD]

    def _arm_for(self, job: job_pb2.Job) -> None:
        """A job that waits for its time becomes ready on time, though that is before the next sweep."""
        if job.wait_reason in _DELAYED:
            # Both by the engine's clock. Of a dedup repeat this is too long, but then the timer knows already.
            seconds = (timestamp_ms(job.run_time) - timestamp_ms(job.update_time)) / 1_000
            self._timers[self._store.partition_of(job.namespace, job.id)].arm(seconds)

    def _arm_after(self, request: store_pb2.FailRequest | store_pb2.ReleaseRequest) -> None:
        if request.HasField("delay"):
            namespace = request.lease.namespace or limits.DEFAULT_NAMESPACE
            partition = self._store.partition_of(namespace, request.lease.id)
            self._timers[partition].arm(duration_ms(request.delay) / 1_000)


def _lease_of(settlement: store_pb2.Settlement) -> store_pb2.LeaseRef:
    if settlement.HasField("complete"):
        return settlement.complete.lease
    return settlement.fail.lease if settlement.HasField("fail") else settlement.release.lease
