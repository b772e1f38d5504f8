"""The contract's request messages from plain Python values; what both clients share."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Required, TypedDict

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from jobwire.v1 import job_pb2, store_pb2

from . import _tracing as tracing

Span = timedelta | float
"""A span of time: a timedelta, or seconds."""
Lease = store_pb2.ClaimedJob | store_pb2.LeaseRef
"""What names a lease: a job as it was claimed, or a reference to one."""
Queues = str | store_pb2.QueueRef | Iterable[str | store_pb2.QueueRef]
"""One queue or several; a QueueRef names one of another namespace."""
Content = bytes | str
"""Payloads and results: bytes, or text, which is stored as UTF-8."""

DEFAULT_NAMESPACE = "default"


class NewJob(TypedDict, total=False):
    """The keywords of `new_job`, which every `create` takes."""

    ttl: Required[Span]
    queue: str
    kind: str
    payload: Content
    content_type: str
    job_id: str
    dedup_key: str
    dedup_window: Span | None
    namespace: str
    tenant: str
    labels: Mapping[str, str] | None
    priority: int
    delay: Span | None
    run_time: datetime | None
    max_attempts: int
    retry: job_pb2.RetryPolicy | None
    queue_timeout: Span | None
    lease_duration: Span | None
    parent: str
    parent_token: str
    trace_context: job_pb2.TraceContext | None
    status: job_pb2.JobStatus.ValueType


def new_job(
    *,
    ttl: Span,
    queue: str = "",
    kind: str = "",
    payload: Content = b"",
    content_type: str = "",
    job_id: str = "",
    dedup_key: str = "",
    dedup_window: Span | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    tenant: str = "",
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
    delay: Span | None = None,
    run_time: datetime | None = None,
    max_attempts: int = 0,
    retry: job_pb2.RetryPolicy | None = None,
    queue_timeout: Span | None = None,
    lease_duration: Span | None = None,
    parent: str = "",
    parent_token: str = "",
    trace_context: job_pb2.TraceContext | None = None,
    status: job_pb2.JobStatus.ValueType = job_pb2.JOB_STATUS_UNSPECIFIED,
) -> store_pb2.CreateRequest:
    """A request to create one job, which may be sent again and again: it creates the job once.

    Without `job_id` and `dedup_key` an id is drawn here. Limits and defaults are those of the contract (the table in
    `job.proto`) and checked by the server.

    Args:
        ttl: How long the record is kept after the job ended; without a queue, from now. 1 s to 1 year.
        queue: The line in which it waits. Empty: the job is state only.
        kind: Picks the handler inside a worker.
        payload: At most 1,900,000 bytes.
        content_type: What the payload is; never interpreted.
        job_id: An id of the caller's own. Not together with `dedup_key`, except on a child.
        dedup_key: A repeat with the same key, within `dedup_window`, answers the first job.
        dedup_window: 1 s to 30 days, default 24 h.
        namespace: Who owns the id space.
        tenant: For whom the job runs: scope of dedup keys, unit of fairness.
        labels: The owner's own marks, at most 32.
        priority: -100 to 100, higher is claimed first.
        delay: Not before this long from now, by the engine's clock.
        run_time: Not before this time, which must carry a time zone. Not together with `delay`.
        max_attempts: 1 to 1,000, default 5.
        retry: Backoff between failed attempts.
        queue_timeout: Ends the job as FAILED when nobody claimed it for this long. Default 24 h.
        lease_duration: The lease of each attempt; default: the worker's.
        parent: The parent's id; this job's id becomes `<parent>/<suffix>`.
        parent_token: Create only while this token holds the parent's lease.
        trace_context: W3C trace context, carried to the worker. Default: the current OpenTelemetry span.
        status: State-only jobs: the first status, default PENDING.
    """
    request = store_pb2.CreateRequest(
        job_id=job_id,
        job=job_pb2.Job(
            namespace=namespace,
            tenant=tenant,
            queue=queue,
            kind=kind,
            labels=labels,
            payload=content(payload),
            content_type=content_type,
            status=status,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            run_time=timestamp(run_time),
            queue_timeout=duration(queue_timeout),
            lease_duration=duration(lease_duration),
            ttl=duration(ttl),
            dedup=job_pb2.Dedup(key=dedup_key, window=duration(dedup_window)) if dedup_key else None,
            parent_id=parent,
            trace_context=trace_context or (tracing.current() if queue else None),
        ),
        delay=duration(delay),
        parent_token=parent_token,
    )
    return _named(request)


def repeatable(request: store_pb2.CreateRequest) -> store_pb2.CreateRequest:
    """The request itself, or a copy with what is missing to send it twice safely: an id or key, and a request id.

    And with the caller's trace context, if it has none and the job is to be run.
    """
    traced = None if request.job.HasField("trace_context") or not request.job.queue else tracing.current()
    if _is_keyed(request) and request.request_id and traced is None:
        return request
    copy = store_pb2.CreateRequest()
    copy.CopyFrom(request)
    if traced is not None:
        copy.job.trace_context.CopyFrom(traced)
    return _named(copy)


def _is_keyed(request: store_pb2.CreateRequest) -> bool:
    return bool(request.job_id) or request.job.HasField("dedup")


def _named(request: store_pb2.CreateRequest) -> store_pb2.CreateRequest:
    if not _is_keyed(request):
        parent = request.job.parent_id
        request.job_id = f"{parent}/{uuid.uuid4().hex}" if parent else uuid.uuid4().hex
    request.request_id = request.request_id or uuid.uuid4().hex
    return request


class Changes(TypedDict, total=False):
    """The keywords of every `update`. None, or not given: stays as it is."""

    namespace: str
    etag: str
    labels: Mapping[str, str] | None
    ttl: Span | None
    payload: Content | None
    content_type: str | None
    priority: int | None
    run_time: datetime | None
    delay: Span | None
    status: job_pb2.JobStatus.ValueType
    result: Content | None
    error: job_pb2.JobError | None
    progress: job_pb2.Progress | None


def update_request(
    job_id: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    etag: str = "",
    labels: Mapping[str, str] | None = None,
    ttl: Span | None = None,
    payload: Content | None = None,
    content_type: str | None = None,
    priority: int | None = None,
    run_time: datetime | None = None,
    delay: Span | None = None,
    status: job_pb2.JobStatus.ValueType = job_pb2.JOB_STATUS_UNSPECIFIED,
    result: Content | None = None,
    error: job_pb2.JobError | None = None,
    progress: job_pb2.Progress | None = None,
) -> store_pb2.UpdateRequest:
    """The owner's change."""
    return store_pb2.UpdateRequest(
        namespace=namespace,
        id=job_id,
        etag=etag,
        request_id=uuid.uuid4().hex,
        labels=None if labels is None else store_pb2.Labels(entries=labels),
        ttl=duration(ttl),
        payload=None if payload is None else content(payload),
        content_type=content_type,
        priority=priority,
        run_time=timestamp(run_time),
        delay=duration(delay),
        status=status,
        result=None if result is None else content(result),
        error=error,
        progress=progress,
    )


class StreamOptions(TypedDict, total=False):
    """The keywords of every `claim_stream`."""

    namespace: str
    worker_id: str
    max_in_flight: int
    lease_duration: Span | None
    receipt_timeout: Span | None
    keepalive_interval: Span | None
    session_id: str
    epoch: int
    held: Iterable[Lease]


def claim_stream_request(
    queues: Queues,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    worker_id: str = "",
    max_in_flight: int = 1,
    lease_duration: Span | None = None,
    receipt_timeout: Span | None = None,
    keepalive_interval: Span | None = None,
    session_id: str = "",
    epoch: int = 0,
    held: Iterable[Lease] = (),
) -> store_pb2.ClaimStreamRequest:
    """A standing claim."""
    return store_pb2.ClaimStreamRequest(
        queues=queue_refs(queues, namespace),
        worker_id=worker_id,
        session_id=session_id,
        epoch=epoch,
        held=[lease_ref(lease) for lease in held],
        max_in_flight=max_in_flight,
        lease_duration=duration(lease_duration),
        receipt_timeout=duration(receipt_timeout),
        keepalive_interval=duration(keepalive_interval),
    )


def fail_request(
    lease: Lease, error: str | job_pb2.JobError, retryable: bool | None, delay: Span | None
) -> store_pb2.FailRequest:
    """The end of an attempt that failed."""
    what = job_pb2.JobError(message=error) if isinstance(error, str) else error
    request = store_pb2.FailRequest(lease=lease_ref(lease), error=what, delay=duration(delay))
    if retryable is not None:
        request.error.retryable = retryable
    return request


def heartbeat_request(leases: Iterable[Lease | store_pb2.LeaseHeartbeat], worker_id: str) -> store_pb2.HeartbeatRequest:
    """Heartbeats of leases, with progress where a LeaseHeartbeat gives it."""
    return store_pb2.HeartbeatRequest(
        leases=[
            lease if isinstance(lease, store_pb2.LeaseHeartbeat) else store_pb2.LeaseHeartbeat(lease=lease_ref(lease))
            for lease in leases
        ],
        worker_id=worker_id,
    )


def lease_ref(lease: Lease) -> store_pb2.LeaseRef:
    """The reference to a lease."""
    if isinstance(lease, store_pb2.LeaseRef):
        return lease
    return store_pb2.LeaseRef(namespace=lease.job.namespace, id=lease.job.id, token=lease.lease_token)


def queue_refs(queues: Queues, namespace: str) -> list[store_pb2.QueueRef]:
    """References to queues, those named by a plain string in `namespace`."""
    if isinstance(queues, str | store_pb2.QueueRef):
        queues = [queues]
    return [store_pb2.QueueRef(namespace=namespace, queue=ref) if isinstance(ref, str) else ref for ref in queues]


def view(full: bool) -> job_pb2.JobView.ValueType:
    """How much of a job to answer."""
    return job_pb2.JOB_VIEW_FULL if full else job_pb2.JOB_VIEW_BASIC


def content(value: Content) -> bytes:
    """Content as bytes."""
    return value.encode() if isinstance(value, str) else value


def seconds(span: Span) -> float:
    """A span in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def duration(span: Span | None) -> Duration | None:
    """A span as the contract has it; None stays unset."""
    if span is None:
        return None
    message = Duration()
    message.FromNanoseconds(round(seconds(span) * 1_000_000) * 1_000)
    return message


def timestamp(time: datetime | None) -> Timestamp | None:
    """A time as the contract has it; None stays unset."""
    if time is None:
        return None
    if time.tzinfo is None:
        # A naive time means UTC to protobuf and local time to Python: refuse to guess.
        raise ValueError("a time needs a time zone, e.g. datetime.now(timezone.utc)")
    message = Timestamp()
    message.FromDatetime(time)
    return message
