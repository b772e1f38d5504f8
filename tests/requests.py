"""Short ways to write requests down."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.times import set_duration, set_timestamp, timestamp_ms

HOUR = 3_600.0

MANY_LABELS = {f"{number:064}": "v" * 256 for number in range(32)}
"""As many and as long as a job may have."""

PENDING = job_pb2.JOB_STATUS_PENDING
RUNNING = job_pb2.JOB_STATUS_RUNNING
SUCCEEDED = job_pb2.JOB_STATUS_SUCCEEDED
FAILED = job_pb2.JOB_STATUS_FAILED
CANCELLED = job_pb2.JOB_STATUS_CANCELLED
READY = job_pb2.WAIT_REASON_READY
SCHEDULED = job_pb2.WAIT_REASON_SCHEDULED
BACKOFF = job_pb2.WAIT_REASON_BACKOFF


def seconds(value: float) -> duration_pb2.Duration:
    """A Duration."""
    duration = duration_pb2.Duration()
    set_duration(duration, round(value * 1_000))
    return duration


def at(ms: int) -> timestamp_pb2.Timestamp:
    """A Timestamp."""
    timestamp = timestamp_pb2.Timestamp()
    set_timestamp(timestamp, ms)
    return timestamp


def ms(timestamp: timestamp_pb2.Timestamp) -> int:
    """A Timestamp's milliseconds."""
    return timestamp_ms(timestamp)


def create(
    job_id: str = "",
    queue: str = "",
    *,
    ttl: float = HOUR,
    key: str = "",
    window: float | None = None,
    request_id: str = "",
    delay: float | None = None,
    parent_token: str = "",
    run_at: int | None = None,
    queue_timeout: float | None = None,
    lease: float | None = None,
    **fields: Any,
) -> store_pb2.CreateRequest:
    """A CreateRequest; spans in seconds, `run_at` in ms, other fields of the job by name."""
    job = job_pb2.Job(queue=queue, ttl=seconds(ttl), **fields)
    if key:
        job.dedup.key = key
    if window is not None:
        job.dedup.window.CopyFrom(seconds(window))
    if run_at is not None:
        job.run_time.CopyFrom(at(run_at))
    if queue_timeout is not None:
        job.queue_timeout.CopyFrom(seconds(queue_timeout))
    if lease is not None:
        job.lease_duration.CopyFrom(seconds(lease))
    return store_pb2.CreateRequest(
        job_id=job_id,
        job=job,
        request_id=request_id,
        parent_token=parent_token,
        delay=None if delay is None else seconds(delay),
    )


def update(
    job_id: str,
    *,
    ttl: float | None = None,
    delay: float | None = None,
    run_at: int | None = None,
    labels: dict[str, str] | None = None,
    **fields: Any,
) -> store_pb2.UpdateRequest:
    """An UpdateRequest; spans in seconds, `run_at` in ms."""
    return store_pb2.UpdateRequest(
        id=job_id,
        ttl=None if ttl is None else seconds(ttl),
        delay=None if delay is None else seconds(delay),
        run_time=None if run_at is None else at(run_at),
        labels=None if labels is None else store_pb2.Labels(entries=labels),
        **fields,
    )


def claim(*queues: str, max_jobs: int = 1, lease: float | None = None, **fields: Any) -> store_pb2.ClaimRequest:
    """A ClaimRequest for queues of the default namespace."""
    return store_pb2.ClaimRequest(
        queues=[store_pb2.QueueRef(queue=queue) for queue in queues],
        max_jobs=max_jobs,
        lease_duration=None if lease is None else seconds(lease),
        **fields,
    )


def lease_of(claimed: store_pb2.ClaimedJob) -> store_pb2.LeaseRef:
    """The lease that came with a job."""
    return store_pb2.LeaseRef(namespace=claimed.job.namespace, id=claimed.job.id, token=claimed.lease_token)


def complete(claimed: store_pb2.ClaimedJob, result: bytes = b"") -> store_pb2.CompleteRequest:
    """A CompleteRequest."""
    return store_pb2.CompleteRequest(lease=lease_of(claimed), result=result)


def fail(
    claimed: store_pb2.ClaimedJob, message: str = "", *, delay: float | None = None, **error: Any
) -> store_pb2.FailRequest:
    """A FailRequest."""
    return store_pb2.FailRequest(
        lease=lease_of(claimed),
        error=job_pb2.JobError(message=message, **error),
        delay=None if delay is None else seconds(delay),
    )


def release(claimed: store_pb2.ClaimedJob, *, delay: float | None = None) -> store_pb2.ReleaseRequest:
    """A ReleaseRequest."""
    return store_pb2.ReleaseRequest(lease=lease_of(claimed), delay=None if delay is None else seconds(delay))


def heartbeat(*claimed: store_pb2.ClaimedJob, progress: job_pb2.Progress | None = None) -> store_pb2.HeartbeatRequest:
    """A HeartbeatRequest for several leases, with the same progress for each."""
    return store_pb2.HeartbeatRequest(
        leases=[store_pb2.LeaseHeartbeat(lease=lease_of(job), progress=progress) for job in claimed]
    )
