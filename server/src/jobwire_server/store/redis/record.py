"""How a record stands in the engine: the fields of its hash, and the two short texts that Lua reads.

A record is one HASH. `route` is written once, `state` at every transition; both are values joined by newlines (which
no name may hold), in the order declared here. The Lua functions that pack and unpack them are generated from these
declarations, so that each field is named and typed once. Everything else is opaque to Lua: serialized messages and
the caller's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import duration_pb2, timestamp_pb2
from jobwire.v1 import job_pb2

from jobwire_server.store.times import set_duration, set_timestamp

INT, STR = "int", "str"

# Times are milliseconds since 1970, spans milliseconds; 0 means "not yet" or "none".
ROUTE: Sequence[tuple[str, str]] = (
    ("created", INT),
    ("nonce", STR),  # first half of the etag
    ("request", STR),  # the Create's request_id
    ("window", INT),  # when the dedup window ends
    ("queue_timeout", INT),
    ("lease", INT),  # the job's own lease, 0: the claimer's
    ("max_attempts", INT),
    ("queue", STR),  # empty: state only
    ("tenant", STR),
    ("parent", STR),
    ("dedup", STR),  # name of its dedup key
    ("hash", STR),  # of its request, if it has a dedup key
    ("kin", STR),  # the nonce of the parent that counts it: another of the same id does not
)
STATE: Sequence[tuple[str, str]] = (
    ("status", STR),  # a letter of STATUS
    ("reason", STR),  # a letter of REASON
    ("version", INT),
    ("revision", INT),  # second half of the etag
    ("attempt", INT),
    ("failures", INT),
    ("losses", INT),
    ("seq", INT),  # place in line, 0: never was in one
    ("priority", INT),
    ("updated", INT),
    ("started", INT),
    ("heartbeat", INT),
    ("finished", INT),
    ("deadline", INT),  # score in its timer: run time, queue deadline, lease deadline or expire time
    ("ttl", INT),
    ("token", STR),  # of the current lease
    ("lease_ms", INT),  # of the current lease
    ("receipt", INT),  # how long the lease waits for its first heartbeat, 0: it came, or none is asked for
    ("undelivered", INT),  # leases in a row whose receipt never came
    ("cancel_at", INT),  # when the lease of a job that somebody asked to stop is revoked, 0: nobody asked
    ("owner", STR),  # the replica through which it was claimed
    ("mark", STR),  # request_id of the last Update
    ("walk", INT),  # number of the latest repair walk that has counted it
    ("worker", STR),
)
STATUS = {
    "P": job_pb2.JOB_STATUS_PENDING,
    "R": job_pb2.JOB_STATUS_RUNNING,
    "S": job_pb2.JOB_STATUS_SUCCEEDED,
    "F": job_pb2.JOB_STATUS_FAILED,
    "C": job_pb2.JOB_STATUS_CANCELLED,
}
LETTER = {status: letter for letter, status in STATUS.items()}
REASON = {
    "-": job_pb2.WAIT_REASON_UNSPECIFIED,
    "R": job_pb2.WAIT_REASON_READY,
    "S": job_pb2.WAIT_REASON_SCHEDULED,
    "B": job_pb2.WAIT_REASON_BACKOFF,
}
OUTCOME = {
    "C": job_pb2.ATTEMPT_OUTCOME_COMPLETED,
    "F": job_pb2.ATTEMPT_OUTCOME_FAILED,
    "R": job_pb2.ATTEMPT_OUTCOME_RELEASED,
    "L": job_pb2.ATTEMPT_OUTCOME_LOST,
    "U": job_pb2.ATTEMPT_OUTCOME_UNDELIVERED,
    "X": job_pb2.ATTEMPT_OUTCOME_CANCELLED,
}

# The hash fields that scripts answer, in this order; `payload` and `result` only in view FULL.
FIELDS = (
    *("route", "state", "spec", "ctype", "labels", "error", "progress", "attempts", "cancel"),
    *("kids", "kids_succeeded", "kids_failed", "kids_cancelled", "payload", "result"),
)
BASIC_FIELDS = FIELDS[:-2]

_SPEC_FIELDS = ("kind", "retry", "children", "dedup", "trace_context")

Fields = Sequence[bytes | None]


def encode_spec(job: job_pb2.Job) -> bytes:
    """The immutable part of a job that Lua never looks at."""
    spec = job_pb2.Job()
    spec.kind = job.kind
    for field in _SPEC_FIELDS[1:]:
        if job.HasField(field):  # type: ignore[arg-type]
            getattr(spec, field).CopyFrom(getattr(job, field))
    return spec.SerializeToString()


def encode_labels(labels: dict[str, str]) -> bytes:
    """Labels as a job that has nothing else, so that decoding is merging."""
    return job_pb2.Job(labels=labels).SerializeToString(deterministic=True) if labels else b""


def decode(namespace: str, job_id: str, fields: Fields) -> job_pb2.Job:
    """The job that a script answered as `FIELDS` (in view BASIC: as `BASIC_FIELDS`)."""
    route, state, spec, ctype, labels, error, progress, attempts, cancel, *rest = fields
    job = job_pb2.Job()
    for part in (spec, labels):
        if part:
            job.MergeFromString(part)
    job.namespace, job.id = namespace, job_id
    if ctype:
        job.content_type = ctype.decode()
    if error:
        job.error.ParseFromString(error)
    if progress is not None:  # an empty message is 0 %
        job.progress.ParseFromString(progress)
        job.progress.SetInParent()
    if cancel:
        job.cancel.CopyFrom(decode_cancel(cancel))
    _decode_texts(job, route, state)
    for line in attempts.decode().split("\n") if attempts else ():
        _decode_attempt(job, line)
    kids = rest[:4]
    if kids[0] and int(kids[0]) > 0:
        counts = [int(kid or 0) for kid in kids]
        job.child_counts.total, job.child_counts.succeeded, job.child_counts.failed, job.child_counts.cancelled = counts
    for name, value in zip(("payload", "result"), rest[4:], strict=False):
        if value:
            setattr(job, name, value)
    return job


def lease_ms_of(fields: Fields) -> int:
    """How long the current lease lasts from each heartbeat."""
    state = fields[1] or b""
    return int(state.split(b"\n")[[name for name, _ in STATE].index("lease_ms")])


def decode_cancel(text: bytes) -> job_pb2.Cancellation:
    """When the lease is revoked (0: there was none) and why, as `cancel.lua` wrote it."""
    deadline, reason = text.decode().split("\n", 1)
    cancel = job_pb2.Cancellation(requested=True, reason=reason)
    _time(cancel.deadline, deadline)
    return cancel


def _decode_texts(job: job_pb2.Job, route: bytes | None, state: bytes | None) -> None:
    if route is None or state is None:
        raise ValueError("a record without its texts")
    (created, nonce, _, _, queue_timeout, lease, max_attempts, job.queue, job.tenant, job.parent_id, _, _, _) = (
        route.decode().split("\n")
    )
    (status, reason, version, revision, attempt, failures, losses, _, priority, *rest) = state.decode().split("\n")
    updated, started, heartbeat, finished, deadline, ttl, _, _, _, undelivered, _, _, _, _, worker = rest
    job.status, job.wait_reason = STATUS[status], REASON[reason]
    job.version, job.etag = int(version), f"{nonce}.{revision}"
    job.attempt, job.failures, job.losses, job.priority = int(attempt), int(failures), int(losses), int(priority)
    job.max_attempts, job.undelivered = int(max_attempts), int(undelivered)
    _span(job.queue_timeout, queue_timeout)
    _span(job.lease_duration, lease)
    _span(job.ttl, ttl)
    _time(job.create_time, created)
    _time(job.update_time, updated)
    _time(job.start_time, started)
    _time(job.heartbeat_time, heartbeat)
    _time(job.finish_time, finished)
    if not job.queue or status in "SFC":
        _time(job.expire_time, deadline)
    elif status == "R":
        _time(job.lease_expire_time, deadline)
        job.worker_id = worker
    elif reason != "R":
        _time(job.run_time, deadline)


def _decode_attempt(job: job_pb2.Job, line: str) -> None:
    number, _, outcome, started, finished, worker = line.split("\x1f")
    attempt = job.attempts.add(number=int(number), worker_id=worker, outcome=OUTCOME[outcome])
    _time(attempt.start_time, started)
    _time(attempt.finish_time, finished)


def _span(field: duration_pb2.Duration, value: str) -> None:
    if value != "0":
        set_duration(field, int(value))


def _time(field: timestamp_pb2.Timestamp, value: str) -> None:
    if value != "0":
        set_timestamp(field, int(value))
