"""Between the contract's messages and the scripts' arguments and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import (
    StoreError,
    dedup_mismatch,
    invalid,
    job_exists,
    lease_lost,
    not_found,
    parent_not_found,
)
from jobwire_server.store.prepare import Creation, cut_error
from jobwire_server.store.times import duration_ms, set_duration, set_timestamp, timestamp_ms
from jobwire_server.store.types import Outcome, SettleResponse, Wish

from .engine import Argument
from .record import LETTER, STATUS, Fields, decode, decode_cancel, encode_labels, encode_spec, lease_ms_of
from .scripts import Code

_SEPARATOR = "\x1f"

CANCEL_OUTCOMES = {
    Code.OK: store_pb2.CANCEL_OUTCOME_CANCELLED,
    Code.RUNNING: store_pb2.CANCEL_OUTCOME_REQUESTED,
    Code.ENDED: store_pb2.CANCEL_OUTCOME_ALREADY_ENDED,
}


# -- create ----------------------------------------------------------------------------------------------------------


def creation_args(creation: Creation) -> tuple[Argument, ...]:
    """As `scripts.CREATE_ITEM`."""
    job = creation.job
    return (
        job.namespace,
        job.id,
        job.tenant,
        job.queue,
        job.parent_id,
        creation.parent_token,
        _dedup_name(job),
        creation.request_hash,
        duration_ms(job.dedup.window) if job.HasField("dedup") else 0,
        creation.request_id,
        creation.nonce,
        LETTER[job.status or job_pb2.JOB_STATUS_PENDING],
        job.priority,
        job.max_attempts,
        timestamp_ms(job.run_time) if job.HasField("run_time") else 0,
        creation.delay_ms,
        duration_ms(job.ttl),
        duration_ms(job.queue_timeout),
        duration_ms(job.lease_duration),
        encode_spec(job),
        encode_labels(dict(job.labels)),
        job.content_type,
        job.payload,
    )


def _dedup_name(job: job_pb2.Job) -> str:
    """Root jobs: by tenant. Children: by family and tenant; the two have different numbers of parts, so never meet."""
    if not job.HasField("dedup"):
        return ""
    family = [job.id.partition("/")[0]] if job.parent_id else []
    return _SEPARATOR.join([job.namespace, *family, job.tenant, job.dedup.key])


def created(creation: Creation, answer: Sequence[Any]) -> Outcome:
    """What became of one item of `scripts.CREATE`."""
    job = creation.job
    match answer[0]:
        case Code.OK:
            fields = [*answer[1:], encode_spec(job), job.content_type.encode(), encode_labels(dict(job.labels))]
            stored = decode(job.namespace, job.id, [*fields, *[None] * 8])
            return store_pb2.CreateResponse(job=stored, created=True, durability=store_pb2.DURABILITY_ENGINE)
        case Code.REPEATED | Code.FOUND:
            return store_pb2.CreateResponse(
                job=decode(job.namespace, answer[1].decode(), answer[2:]),
                created=answer[0] == Code.REPEATED,
                durability=store_pb2.DURABILITY_ENGINE,
            )
        case Code.EXISTS:
            return job_exists(job.namespace, job.id)
        case Code.DEDUP_MISMATCH:
            return dedup_mismatch(job.dedup.key, answer[1].decode())
        case Code.PARENT_NOT_FOUND:
            return parent_not_found(job.namespace, job.parent_id)
        case Code.LEASE_LOST:
            return lease_lost(job.parent_id)
        case _:
            return invalid("job.run_time", "is more than 366 days ahead")


# -- the owner's changes ---------------------------------------------------------------------------------------------


def update_args(namespace: str, request: store_pb2.UpdateRequest, mark: str) -> tuple[Argument, ...]:
    """As `scripts.UPDATE`: first which fields are given, then their values."""
    return (
        namespace,
        request.id,
        request.etag,
        mark,
        *(int(request.HasField(name)) for name in ("labels", "ttl", "payload", "content_type", "priority")),
        int(request.HasField("run_time") or request.HasField("delay")),
        int(request.status != job_pb2.JOB_STATUS_UNSPECIFIED),
        *(int(request.HasField(name)) for name in ("result", "error", "progress")),
        encode_labels(dict(request.labels.entries)),
        duration_ms(request.ttl),
        request.payload,
        request.content_type,
        request.priority,
        max(timestamp_ms(request.run_time), 1) if request.HasField("run_time") else 0,
        duration_ms(request.delay),
        LETTER.get(request.status, ""),
        request.result,
        cut_error(request.error).SerializeToString(),
        request.progress.SerializeToString(),
        int(request.view == job_pb2.JOB_VIEW_FULL),
    )


# -- claim and settle ------------------------------------------------------------------------------------------------


def lease_args(lease: store_pb2.LeaseRef) -> tuple[str, str, str]:
    """Namespace, id, token."""
    return lease.namespace or limits.DEFAULT_NAMESPACE, lease.id, lease.token


def wish_args(wish: Wish, replica: str) -> tuple[Argument, ...]:
    """As the parameters of `scripts.CLAIM`."""
    size = (wish.max_jobs, wish.max_bytes, wish.lease_ms, wish.receipt_ms)
    return (*size, wish.worker_id, wish.token, replica, int(wish.waiting))


def claimed(namespace: bytes, job_id: bytes, token: bytes, fields: Fields) -> store_pb2.ClaimedJob:
    """One job of `scripts.CLAIM`."""
    job = decode(namespace.decode(), job_id.decode(), fields)
    answer = store_pb2.ClaimedJob(job=job, lease_token=token.decode(), lease_expire_time=job.lease_expire_time)
    set_duration(answer.lease_duration, lease_ms_of(fields))
    return answer


def heard(deadline: int, cancel: bytes | None = None) -> store_pb2.HeartbeatResult:
    """What became of one lease of `scripts.HEARTBEAT`."""
    result = store_pb2.HeartbeatResult(state=store_pb2.LEASE_STATE_LOST)
    if deadline:
        result.state = store_pb2.LEASE_STATE_HELD
        set_timestamp(result.lease_expire_time, deadline)
    if cancel:
        result.state = store_pb2.LEASE_STATE_CANCEL_REQUESTED
        result.cancel.CopyFrom(decode_cancel(cancel))
    return result


def settlement_args(settlement: store_pb2.Settlement) -> tuple[Argument, ...]:
    """As an item of `scripts.SETTLE`."""
    match settlement.WhichOneof("verb"):
        case "complete":
            return (*lease_args(settlement.complete.lease), "C", 0, 0, settlement.complete.result)
        case "fail":
            request = settlement.fail
            final = request.error.HasField("retryable") and not request.error.retryable
            content = cut_error(request.error).SerializeToString()
            return (*lease_args(request.lease), "F", int(final), duration_ms(request.delay), content)
        case _:
            return (*lease_args(settlement.release.lease), "R", 0, duration_ms(settlement.release.delay), b"")


def settled(settlement: store_pb2.Settlement, answer: Sequence[Any]) -> SettleResponse | StoreError:
    """What became of one item of `scripts.SETTLE`."""
    verb = settlement.WhichOneof("verb")
    request = settlement.complete if verb == "complete" else settlement.fail if verb == "fail" else settlement.release
    if answer[0] == Code.NOT_FOUND:
        return not_found(request.lease.namespace or limits.DEFAULT_NAMESPACE, request.lease.id)
    if answer[0] == Code.LEASE_LOST:
        return lease_lost(request.lease.id)
    repeated, durability = answer[0] == Code.REPEATED, store_pb2.DURABILITY_ENGINE
    if verb == "complete":
        return store_pb2.CompleteResponse(repeated_call=repeated, durability=durability)
    if verb == "release":
        return store_pb2.ReleaseResponse(repeated_call=repeated, durability=durability)
    return store_pb2.FailResponse(status=STATUS[answer[1].decode()], repeated_call=repeated, durability=durability)


# -- flat lists ------------------------------------------------------------------------------------------------------


def flat_queues(queues: Iterable[tuple[str, str]]) -> list[str]:
    """(namespace, queue) one after the other."""
    return [part for queue in queues for part in queue]


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Every two elements together."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def names_of(flat: Sequence[bytes]) -> list[tuple[str, str]]:
    """(namespace, id) pairs."""
    return [(namespace.decode(), job_id.decode()) for namespace, job_id in pairs(flat)]


def mended(reports: Iterable[Sequence[Any]]) -> dict[str, int]:
    """How many things of each sort the scripts of a repair mended."""
    total: Counter[str] = Counter()
    for report in reports:
        for sort, number in pairs(report):
            total[sort.decode()] += number
    return dict(total)
