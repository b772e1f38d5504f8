"""The client for plain scripts: the same verbs, blocking, over a synchronous channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message

from jobwire.v1 import admin_pb2, admin_pb2_grpc, job_pb2, store_pb2, store_pb2_grpc

from . import _requests as requests
from ._batching import chunks
from ._connection import Settled, alone, create_outcome, settle_outcome
from ._endpoint import Endpoint
from ._errors import JobwireError, error_of_call
from ._limits import BATCH
from ._requests import DEFAULT_NAMESPACE, Changes, Content, Lease, NewJob, Queues, Span, StreamOptions
from ._retry import retrying_sync
from ._stream import SyncClaimStream

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)


def connect_sync(target: str, *, tls: grpc.ChannelCredentials | None = None, timeout: Span = 10.0) -> SyncClient:
    """As `jobwire.connect`, for code without an event loop: `with jobwire.connect_sync("...") as client: ...`."""
    return SyncClient(target, tls=tls, timeout=timeout)


class SyncClient:
    """As `Client`, blocking. Safe to share between threads; calls are not gathered into batches."""

    def __init__(self, target: str, *, tls: grpc.ChannelCredentials | None = None, timeout: Span = 10.0) -> None:
        """As `connect_sync`."""
        self.endpoint = Endpoint(target, tls)
        self._timeout = requests.seconds(timeout)
        self._channel = self.endpoint.channel()
        self._store = store_pb2_grpc.StoreStub(self._channel)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the channel. Calls still running fail."""
        self._channel.close()

    def _call(self, method: grpc.UnaryUnaryMultiCallable[Request, Answer], request: Request) -> Answer:
        """A call that is safe to repeat."""
        return retrying_sync(lambda left: self._try(method, request, left), self._timeout)

    def _try(self, method: grpc.UnaryUnaryMultiCallable[Request, Answer], request: Request, timeout: float) -> Answer:
        """A call, once."""
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise error_of_call(error) from error

    # -- create ------------------------------------------------------------------------------------------------------

    def create(self, **job: Unpack[NewJob]) -> job_pb2.Job:
        """As `Client.create`."""
        return self.create_from(requests.new_job(**job)).job

    def create_from(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """As `Client.create_from`."""
        return self._call(self._store.Create, requests.repeatable(request))

    def create_many(
        self, creations: Iterable[store_pb2.CreateRequest]
    ) -> list[store_pb2.CreateResponse | JobwireError]:
        """As `Client.create_many`."""
        outcomes: list[store_pb2.CreateResponse | JobwireError] = []
        for chunk in chunks(requests.repeatable(request) for request in creations):
            answer = self._call(self._store.BatchCreate, store_pb2.BatchCreateRequest(requests=chunk))
            outcomes += map(create_outcome, answer.results)
        return outcomes

    # -- read --------------------------------------------------------------------------------------------------------

    def get(
        self,
        job_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        full: bool = False,
        wait: Span | None = None,
        after_version: int = 0,
    ) -> job_pb2.Job:
        """As `Client.get`."""
        patience = requests.seconds(wait or 0)

        def get(left: float) -> store_pb2.GetResponse:
            request = store_pb2.GetRequest(
                namespace=namespace,
                id=job_id,
                view=requests.view(full),
                wait=requests.duration(max(0.0, min(patience, left - self._timeout))) if patience else None,
                after_version=after_version,
            )
            return self._try(self._store.Get, request, left)

        return retrying_sync(get, patience + self._timeout).job

    def batch_get(
        self, job_ids: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE, full: bool = False
    ) -> list[job_pb2.Job | None]:
        """As `Client.batch_get`."""
        jobs: list[job_pb2.Job | None] = []
        while len(jobs) < len(job_ids):
            request = store_pb2.BatchGetRequest(
                namespace=namespace, ids=job_ids[len(jobs) : len(jobs) + BATCH], view=requests.view(full)
            )
            answer = self._call(self._store.BatchGet, request)
            jobs += (result.job if result.HasField("job") else None for result in answer.results)
        return jobs

    def exists(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        """As `Client.exists`."""
        request = store_pb2.ExistsRequest(namespace=namespace, id=job_id)
        return self._call(self._store.Exists, request).exists

    def list_ids(self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 100) -> list[str]:
        """As `Client.list_ids`."""
        request = store_pb2.ListIdsRequest(namespace=namespace, limit=limit)
        return list(self._call(self._store.ListIds, request).ids)

    def list_children(
        self, parent_id: str, *, namespace: str = DEFAULT_NAMESPACE, full: bool = False, page_size: int = 100
    ) -> Iterator[job_pb2.Job]:
        """As `Client.list_children`."""
        request = store_pb2.ListChildrenRequest(
            namespace=namespace, parent_id=parent_id, view=requests.view(full), page_size=page_size
        )
        while True:
            page = self._call(self._store.ListChildren, request)
            yield from page.jobs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # -- the owner's changes -----------------------------------------------------------------------------------------

    def update(self, job_id: str, **changes: Unpack[Changes]) -> job_pb2.Job:
        """As `Client.update`."""
        return self._call(self._store.Update, requests.update_request(job_id, **changes)).job

    def delete(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE, etag: str = "") -> bool:
        """As `Client.delete`."""
        request = store_pb2.DeleteRequest(namespace=namespace, id=job_id, etag=etag)
        return self._call(self._store.Delete, request).existed

    def cancel(
        self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE, reason: str = "", grace: Span | None = None
    ) -> store_pb2.CancelResponse:
        """As `Client.cancel`."""
        request = store_pb2.CancelRequest(namespace=namespace, id=job_id, reason=reason, grace=requests.duration(grace))
        return self._call(self._store.Cancel, request)

    # -- claim and settle --------------------------------------------------------------------------------------------

    def claim(
        self,
        queues: Queues,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_jobs: int = 1,
        wait: Span = 0.0,
        lease_duration: Span | None = None,
        worker_id: str = "",
    ) -> list[store_pb2.ClaimedJob]:
        """As `Client.claim`."""
        request = store_pb2.ClaimRequest(
            queues=requests.queue_refs(queues, namespace),
            worker_id=worker_id,
            max_jobs=max_jobs,
            lease_duration=requests.duration(lease_duration),
            wait=requests.duration(wait),
        )
        return list(self._try(self._store.Claim, request, requests.seconds(wait) + self._timeout).jobs)

    def claim_stream(self, queues: Queues, **options: Unpack[StreamOptions]) -> SyncClaimStream:
        """As `Client.claim_stream`."""
        return SyncClaimStream(self._store, requests.claim_stream_request(queues, **options))

    def heartbeat(
        self, leases: Iterable[Lease | store_pb2.LeaseHeartbeat], *, worker_id: str = ""
    ) -> list[store_pb2.HeartbeatResult]:
        """As `Client.heartbeat`."""
        request = requests.heartbeat_request(leases, worker_id)
        return list(self._call(self._store.Heartbeat, request).results)

    def complete(self, lease: Lease, result: Content = b"") -> store_pb2.CompleteResponse:
        """As `Client.complete`."""
        request = store_pb2.CompleteRequest(lease=requests.lease_ref(lease), result=requests.content(result))
        return self._call(self._store.Complete, request)

    def fail(
        self,
        lease: Lease,
        error: str | job_pb2.JobError,
        *,
        retryable: bool | None = None,
        delay: Span | None = None,
    ) -> store_pb2.FailResponse:
        """As `Client.fail`."""
        request = requests.fail_request(lease, error, retryable, delay)
        return self._call(self._store.Fail, request)

    def release(self, lease: Lease, *, delay: Span | None = None) -> store_pb2.ReleaseResponse:
        """As `Client.release`."""
        request = store_pb2.ReleaseRequest(lease=requests.lease_ref(lease), delay=requests.duration(delay))
        return self._call(self._store.Release, request)

    def batch_settle(self, settlements: Iterable[store_pb2.Settlement]) -> list[Settled | JobwireError]:
        """As `Client.batch_settle`."""
        outcomes: list[Settled | JobwireError] = []
        for chunk in chunks(settlements):
            answer = self._call(self._store.BatchSettle, store_pb2.BatchSettleRequest(settlements=chunk))
            outcomes += map(settle_outcome, answer.results)
        return outcomes

    def settle(self, settlement: store_pb2.Settlement) -> Settled:
        """As `Client.settle`."""
        verb, request = alone(settlement)
        answer: Settled = self._call(getattr(self._store, verb), request)
        return answer

    # -- operators ---------------------------------------------------------------------------------------------------

    def reclaim_stale(self, *, heartbeat_before: datetime | None = None) -> list[store_pb2.LeaseRef]:
        """As `Client.reclaim_stale`."""
        request = store_pb2.ReclaimStaleRequest(heartbeat_before=requests.timestamp(heartbeat_before), page_size=1_000)
        reclaimed: list[store_pb2.LeaseRef] = []
        while True:
            page = self._call(self._store.ReclaimStale, request)
            reclaimed += page.reclaimed
            if not page.next_page_token:
                return reclaimed
            request.page_token = page.next_page_token

    def list_queues(self, *, namespace: str = "", page_size: int = 100) -> Iterator[admin_pb2.Queue]:
        """As `Client.list_queues`."""
        request = admin_pb2.ListQueuesRequest(namespace=namespace, page_size=page_size)
        while True:
            page = self._call(self._admin.ListQueues, request)
            yield from page.queues
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def get_queue(self, queue: str, *, namespace: str = DEFAULT_NAMESPACE) -> admin_pb2.Queue:
        """As `Client.get_queue`."""
        request = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(namespace=namespace, queue=queue))
        return self._call(self._admin.GetQueue, request).queue
