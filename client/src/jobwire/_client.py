"""The client: the contract's verbs as coroutines over one channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Unpack

import grpc

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from . import _requests as requests
from ._batching import chunks
from ._connection import Connection, Settled, create_outcome, settle_outcome
from ._endpoint import Endpoint
from ._errors import JobwireError
from ._limits import BATCH
from ._requests import DEFAULT_NAMESPACE, Changes, Content, Lease, NewJob, Queues, Span, StreamOptions
from ._retry import retrying
from ._stream import ClaimStream


def connect(target: str, *, tls: grpc.ChannelCredentials | None = None, timeout: Span = 10.0) -> Client:
    """A client of the server at `target`: `async with jobwire.connect("127.0.0.1:50051") as client: ...`.

    Call it where the event loop runs. `timeout` bounds each call, its retries included; what a verb waits by itself
    (`wait`) comes on top. A client belongs to its event loop and to its process: connect after a fork, never before
    (in a child of a process that has connected, this raises a RuntimeError, and the parent's clients must not be used).

    Args:
        target: A gRPC target: `host:port`, `dns:///host:port`, `unix:/path`. Of several servers (a name with several
            addresses, or `ipv4:host:port,host:port`) one is used, and another when it goes away.
        tls: E.g. `grpc.ssl_channel_credentials()`; None: no encryption.
        timeout: Default 10 s.
    """
    return Client(target, tls=tls, timeout=timeout)


class Client(Connection):
    """The contract's verbs. Answers are the contract's messages; errors are `JobwireError`s.

    UNAVAILABLE is retried by itself where a repeat does no harm, up to five tries within the timeout; only `claim` is
    never repeated. Concurrent `create`s go out together, and so do settlements. Safe to share between tasks.
    """

    def __init__(self, target: str, *, tls: grpc.ChannelCredentials | None = None, timeout: Span = 10.0) -> None:
        """As `connect`."""
        super().__init__(Endpoint(target, tls), requests.seconds(timeout))

    # -- create ------------------------------------------------------------------------------------------------------

    async def create(self, **job: Unpack[NewJob]) -> job_pb2.Job:
        """Stores a job; with `queue`, also enqueues it. Keywords: see `jobwire.new_job`; `ttl` is mandatory.

        Returns the job as stored, without payload; of a repeated dedup key, the first job as it is now.
        """
        return (await self.create_from(requests.new_job(**job))).job

    async def create_from(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """As `create`, from a request message; the answer also tells whether the job is new (`created`)."""
        return await self._create(requests.repeatable(request))

    async def create_many(
        self, creations: Iterable[store_pb2.CreateRequest]
    ) -> list[store_pb2.CreateResponse | JobwireError]:
        """Creates any number of jobs (see `jobwire.new_job`), up to 1,000 per call.

        Not all or nothing: one answer or error per request, in order. Raises only when a whole call fails; all
        requests may then be sent again.
        """
        outcomes: list[store_pb2.CreateResponse | JobwireError] = []
        for chunk in chunks(requests.repeatable(request) for request in creations):
            answer = await self._call(self._store.BatchCreate, store_pb2.BatchCreateRequest(requests=chunk))
            outcomes += map(create_outcome, answer.results)
        return outcomes

    # -- read --------------------------------------------------------------------------------------------------------

    async def get(
        self,
        job_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        full: bool = False,
        wait: Span | None = None,
        after_version: int = 0,
    ) -> job_pb2.Job:
        """Reads a job, with payload and result if `full`. Raises NotFound.

        With `wait` (at most 60 s) it answers when the job has ended, or has a version above `after_version` if that
        is given, or when the time is up.
        """
        patience = requests.seconds(wait or 0)

        def get(left: float) -> Coroutine[None, None, store_pb2.GetResponse]:
            request = store_pb2.GetRequest(
                namespace=namespace,
                id=job_id,
                view=requests.view(full),
                wait=requests.duration(max(0.0, min(patience, left - self._timeout))) if patience else None,
                after_version=after_version,
            )
            return self._try(self._store.Get, request, left)

        return (await retrying(get, patience + self._timeout)).job

    async def batch_get(
        self, job_ids: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE, full: bool = False
    ) -> list[job_pb2.Job | None]:
        """Reads any number of jobs, in the order of `job_ids`; None where there is no such job."""
        jobs: list[job_pb2.Job | None] = []
        while len(jobs) < len(job_ids):
            request = store_pb2.BatchGetRequest(
                namespace=namespace, ids=job_ids[len(jobs) : len(jobs) + BATCH], view=requests.view(full)
            )
            answer = await self._call(self._store.BatchGet, request)
            jobs += (result.job if result.HasField("job") else None for result in answer.results)
        return jobs

    async def exists(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        """Whether the job exists and has not expired."""
        request = store_pb2.ExistsRequest(namespace=namespace, id=job_id)
        return (await self._call(self._store.Exists, request)).exists

    async def list_ids(self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 100) -> list[str]:
        """The newest ids of a namespace, newest first; at most 1,000."""
        request = store_pb2.ListIdsRequest(namespace=namespace, limit=limit)
        return list((await self._call(self._store.ListIds, request)).ids)

    async def list_children(
        self, parent_id: str, *, namespace: str = DEFAULT_NAMESPACE, full: bool = False, page_size: int = 100
    ) -> AsyncIterator[job_pb2.Job]:
        """The children of a job, oldest first, a page at a time."""
        request = store_pb2.ListChildrenRequest(
            namespace=namespace, parent_id=parent_id, view=requests.view(full), page_size=page_size
        )
        while True:
            page = await self._call(self._store.ListChildren, request)
            for job in page.jobs:
                yield job
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # -- the owner's changes -----------------------------------------------------------------------------------------

    async def update(self, job_id: str, **changes: Unpack[Changes]) -> job_pb2.Job:
        """Changes what is given, all of it or nothing; which fields a job's status allows is told in `store.proto`.

        Keywords: `labels`, `ttl`, `payload`, `content_type`, `priority`, `run_time`, `delay`; of state-only jobs also
        `status`, `result`, `error`, `progress`. With `etag` only if that is the current one (else EtagMismatch, which
        has the current one). Returns the job as it is now, without payload. Raises NotFound, IllegalTransition.
        """
        return (await self._call(self._store.Update, requests.update_request(job_id, **changes))).job

    async def delete(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE, etag: str = "") -> bool:
        """Removes a job in any status; a lease on it is lost. Whether there was one (a repeat answers False)."""
        request = store_pb2.DeleteRequest(namespace=namespace, id=job_id, etag=etag)
        return (await self._call(self._store.Delete, request)).existed

    async def cancel(
        self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE, reason: str = "", grace: Span | None = None
    ) -> store_pb2.CancelResponse:
        """Stops a job: at once if it waits; if it runs, its worker is asked and has `grace` (default 30 s) to settle.

        The answer's `outcome` tells which, or that the job had ended already. Raises NotFound.
        """
        request = store_pb2.CancelRequest(namespace=namespace, id=job_id, reason=reason, grace=requests.duration(grace))
        return await self._call(self._store.Cancel, request)

    # -- claim and settle --------------------------------------------------------------------------------------------

    async def claim(
        self,
        queues: Queues,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_jobs: int = 1,
        wait: Span = 0.0,
        lease_duration: Span | None = None,
        worker_id: str = "",
    ) -> list[store_pb2.ClaimedJob]:
        """Takes up to `max_jobs` jobs now, or waits up to `wait` (at most 60 s) for the first.

        Empty: nothing is ready. Never retried: jobs of a lost answer come back when their leases run out.
        """
        request = store_pb2.ClaimRequest(
            queues=requests.queue_refs(queues, namespace),
            worker_id=worker_id,
            max_jobs=max_jobs,
            lease_duration=requests.duration(lease_duration),
            wait=requests.duration(wait),
        )
        return list((await self._try(self._store.Claim, request, requests.seconds(wait) + self._timeout)).jobs)

    def claim_stream(self, queues: Queues, **options: Unpack[StreamOptions]) -> ClaimStream:
        """A standing claim of up to `max_in_flight` unsettled jobs; see `ClaimStream`. `Worker` is built on it.

        Further keywords: `namespace`, `worker_id`, `lease_duration`; `receipt_timeout` (a job must be acknowledged by a
        first heartbeat within it), `keepalive_interval`, and to reopen `session_id`, `epoch`, `held`.
        """
        return ClaimStream(self._store, requests.claim_stream_request(queues, **options))

    async def heartbeat(
        self, leases: Iterable[Lease | store_pb2.LeaseHeartbeat], *, worker_id: str = ""
    ) -> list[store_pb2.HeartbeatResult]:
        """Extends up to 1,000 leases, each by its duration from now; one result each. A LeaseHeartbeat has progress."""
        request = requests.heartbeat_request(leases, worker_id)
        return list((await self._call(self._store.Heartbeat, request)).results)

    async def complete(self, lease: Lease, result: Content = b"") -> store_pb2.CompleteResponse:
        """Ends a lease: the job SUCCEEDED, with `result` (at most 1,900,000 bytes). Raises LeaseLost, NotFound."""
        request = store_pb2.CompleteRequest(lease=requests.lease_ref(lease), result=requests.content(result))
        answer = await self.settle(store_pb2.Settlement(complete=request))
        assert isinstance(answer, store_pb2.CompleteResponse)
        return answer

    async def fail(
        self,
        lease: Lease,
        error: str | job_pb2.JobError,
        *,
        retryable: bool | None = None,
        delay: Span | None = None,
    ) -> store_pb2.FailResponse:
        """Ends a lease: the attempt failed. The job waits `delay` and runs again while attempts remain and
        `retryable` is not False, else it FAILED. Raises LeaseLost, NotFound.
        """
        request = requests.fail_request(lease, error, retryable, delay)
        answer = await self.settle(store_pb2.Settlement(fail=request))
        assert isinstance(answer, store_pb2.FailResponse)
        return answer

    async def release(self, lease: Lease, *, delay: Span | None = None) -> store_pb2.ReleaseResponse:
        """Ends a lease: gives the job back untouched, for `delay` or at once. Raises LeaseLost, NotFound."""
        request = store_pb2.ReleaseRequest(lease=requests.lease_ref(lease), delay=requests.duration(delay))
        answer = await self.settle(store_pb2.Settlement(release=request))
        assert isinstance(answer, store_pb2.ReleaseResponse)
        return answer

    async def settle(self, settlement: store_pb2.Settlement) -> Settled:
        """As `complete`, `fail` or `release`, from a message."""
        return await self._settle(settlement)

    async def batch_settle(self, settlements: Iterable[store_pb2.Settlement]) -> list[Settled | JobwireError]:
        """Any number of settlements, up to 1,000 per call; one answer or error each, in order."""
        outcomes: list[Settled | JobwireError] = []
        for chunk in chunks(settlements):
            answer = await self._call(self._store.BatchSettle, store_pb2.BatchSettleRequest(settlements=chunk))
            outcomes += map(settle_outcome, answer.results)
        return outcomes

    # -- operators ---------------------------------------------------------------------------------------------------

    async def reclaim_stale(self, *, heartbeat_before: datetime | None = None) -> list[store_pb2.LeaseRef]:
        """Takes back every lease that ran out, or whose last heartbeat is before a time (with its time zone).

        Servers sweep by themselves; this is for operators and tests.
        """
        request = store_pb2.ReclaimStaleRequest(heartbeat_before=requests.timestamp(heartbeat_before), page_size=1_000)
        reclaimed: list[store_pb2.LeaseRef] = []
        while True:
            page = await self._call(self._store.ReclaimStale, request)
            reclaimed += page.reclaimed
            if not page.next_page_token:
                return reclaimed
            request.page_token = page.next_page_token

    async def list_queues(self, *, namespace: str = "", page_size: int = 100) -> AsyncIterator[admin_pb2.Queue]:
        """The queues that hold live jobs, with their statistics, a page at a time; of all namespaces by default."""
        request = admin_pb2.ListQueuesRequest(namespace=namespace, page_size=page_size)
        while True:
            page = await self._call(self._admin.ListQueues, request)
            for queue in page.queues:
                yield queue
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def get_queue(self, queue: str, *, namespace: str = DEFAULT_NAMESPACE) -> admin_pb2.Queue:
        """A queue's settings and statistics; zeros if it holds nothing."""
        request = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(namespace=namespace, queue=queue))
        return (await self._call(self._admin.GetQueue, request)).queue
