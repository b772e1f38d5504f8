"""The one place that says which field of which request gets which check. Every store verb begins here.

Requests are checked, not changed. All problems of a request are reported at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from . import limits
from .errors import not_served
from .fields import Problems

_OUTPUT_ONLY = (
    "id",
    "result",
    "error",
    "wait_reason",
    "progress",
    "attempt",
    "failures",
    "losses",
    "version",
    "etag",
    "child_counts",
    "create_time",
    "update_time",
    "start_time",
    "heartbeat_time",
    "finish_time",
    "expire_time",
    "cancel",
    "attempts",
    "lease_expire_time",
    "worker_id",
)
_QUEUE_ONLY = (
    "priority",
    "max_attempts",
    "retry",
    "run_time",
    "queue_timeout",
    "lease_duration",
    "max_run_time",
    "children",
)
_STATUSES = set(job_pb2.JobStatus.values()) - {job_pb2.JOB_STATUS_UNSPECIFIED}
_VIEWS = set(job_pb2.JobView.values())


def check_batch(field: str, size: int) -> None:
    """1 to 1,000 items."""
    problems = Problems()
    problems.size(field, size, 1, limits.BATCH)
    problems.raise_any()


# -- create ----------------------------------------------------------------------------------------------------------


def check_create(request: store_pb2.CreateRequest) -> None:
    """Store.Create, and each item of Store.BatchCreate."""
    problems = Problems()
    job = request.job
    problems.text("job.namespace", job.namespace, limits.NAME_BYTES)
    for field in ("tenant", "queue", "kind", "content_type"):
        problems.text(f"job.{field}", getattr(job, field), limits.NAME_BYTES)
    problems.text("request_id", request.request_id, limits.NAME_BYTES)
    problems.labels("job.labels", dict(job.labels))
    problems.content("job.payload", job.payload)
    _check_identity(problems, request)
    _check_policy(problems, request)
    if job.HasField("trace_context"):
        problems.text("job.trace_context.traceparent", job.trace_context.traceparent, limits.TRACEPARENT_BYTES)
        problems.text("job.trace_context.tracestate", job.trace_context.tracestate, limits.TRACESTATE_BYTES)
    set_fields = {field.name for field, _ in job.ListFields()}
    for field in _OUTPUT_ONLY:
        if field in set_fields:
            problems.add(f"job.{field}", "is set by the server only")
    if job.status and job.queue:
        problems.add("job.status", "may be given only without a queue")
    elif job.status and job.status not in _STATUSES:
        problems.add("job.status", "is not a known status")
    if not job.queue:
        for field in set_fields.intersection(_QUEUE_ONLY):
            problems.add(f"job.{field}", "needs a queue")
        if request.HasField("delay"):
            problems.add("delay", "needs a queue")
    _check_durability(problems, request.durability)
    problems.raise_any()
    if job.HasField("max_run_time"):
        raise not_served("job.max_run_time")
    if job.children.wait:
        raise not_served("job.children.wait")
    if job.dedup.scope == job_pb2.DEDUP_SCOPE_LIVE:
        raise not_served("job.dedup.scope LIVE")


def _check_identity(problems: Problems, request: store_pb2.CreateRequest) -> None:
    job = request.job
    if request.job_id:
        problems.job_id("job_id", request.job_id)
    if job.parent_id:
        problems.job_id("job.parent_id", job.parent_id)
        if request.job_id:
            suffix = request.job_id.removeprefix(f"{job.parent_id}/")
            if suffix == request.job_id or not suffix or "/" in suffix:
                problems.add("job_id", "of a child must be <parent_id>/<suffix>, without a '/' in the suffix")
        elif job.parent_id.count("/") + 2 > limits.ID_LEVELS:
            problems.add("job.parent_id", f"leaves no level below it (at most {limits.ID_LEVELS})")
        elif len(job.parent_id.encode()) + 33 > limits.ID_BYTES:
            problems.add("job.parent_id", f"leaves no room for a drawn suffix (at most {limits.ID_BYTES} bytes)")
    if request.request_id and not request.job_id and not job.HasField("dedup"):
        problems.add("request_id", "needs job_id or job.dedup, by which a first try would be found")
    if request.parent_token:
        problems.text("parent_token", request.parent_token, limits.TOKEN_BYTES)
        if not job.parent_id:
            problems.add("parent_token", "needs job.parent_id")
    if job.HasField("dedup"):
        dedup = job.dedup
        problems.text("job.dedup.key", dedup.key, limits.DEDUP_KEY_BYTES, required=True)
        if dedup.scope not in job_pb2.DedupScope.values():
            problems.add("job.dedup.scope", "is not a known scope")
        if dedup.on_conflict and dedup.scope != job_pb2.DEDUP_SCOPE_LIVE:
            problems.add("job.dedup.on_conflict", "is for scope LIVE only")
        if dedup.HasField("window"):
            problems.duration("job.dedup.window", dedup.window, limits.WINDOW_MIN_MS, limits.WINDOW_MAX_MS)
        if request.job_id and not job.parent_id:
            problems.add("job_id", "must not be given with job.dedup: an id that the caller owns already is a key")


def _check_policy(problems: Problems, request: store_pb2.CreateRequest) -> None:
    job = request.job
    if job.HasField("ttl"):
        problems.duration("job.ttl", job.ttl, limits.TTL_MIN_MS, limits.TTL_MAX_MS)
    else:
        problems.add("job.ttl", "is required")
    problems.number("job.priority", job.priority, limits.PRIORITY_MIN, limits.PRIORITY_MAX)
    problems.number("job.max_attempts", job.max_attempts, 1, limits.MAX_ATTEMPTS_MAX)
    if job.HasField("retry"):
        retry = job.retry
        for field in ("initial_backoff", "max_backoff"):
            if retry.HasField(field):
                problems.duration(
                    f"job.retry.{field}", getattr(retry, field), limits.BACKOFF_MIN_MS, limits.BACKOFF_MAX_MS
                )
        if retry.multiplier and not limits.MULTIPLIER_MIN <= retry.multiplier <= limits.MULTIPLIER_MAX:
            problems.add("job.retry.multiplier", "must be between 1 and 10")
    if job.HasField("queue_timeout"):
        problems.duration(
            "job.queue_timeout", job.queue_timeout, limits.QUEUE_TIMEOUT_MIN_MS, limits.QUEUE_TIMEOUT_MAX_MS
        )
    if job.HasField("lease_duration"):
        _check_lease_duration(problems, "job.lease_duration", job)
    _check_start(problems, "job.run_time", job, request)


def _check_start(
    problems: Problems,
    run_time_field: str,
    holder: job_pb2.Job | store_pb2.UpdateRequest,
    request: store_pb2.CreateRequest | store_pb2.UpdateRequest,
) -> None:
    if holder.HasField("run_time"):
        problems.timestamp(run_time_field, holder.run_time)
        if request.HasField("delay"):
            problems.add("delay", f"must not be given with {run_time_field}")
    if request.HasField("delay"):
        problems.duration("delay", request.delay, 0, limits.DELAY_MAX_MS)


# -- read ------------------------------------------------------------------------------------------------------------


def check_get(request: store_pb2.GetRequest) -> None:
    """Store.Get."""
    problems = Problems()
    _check_name(problems, request.namespace, request.id)
    _check_view(problems, request.view)
    _check_wait(problems, request)
    problems.number("after_version", request.after_version, 0, 10**14)
    problems.raise_any()


def check_batch_get(request: store_pb2.BatchGetRequest) -> None:
    """Store.BatchGet."""
    problems = Problems()
    problems.text("namespace", request.namespace, limits.NAME_BYTES)
    problems.size("ids", len(request.ids), 1, limits.BATCH)
    for index, job_id in enumerate(request.ids):
        problems.job_id(f"ids[{index}]", job_id)
    _check_view(problems, request.view)
    problems.raise_any()


def check_exists(request: store_pb2.ExistsRequest) -> None:
    """Store.Exists."""
    problems = Problems()
    _check_name(problems, request.namespace, request.id)
    problems.raise_any()


def check_list_ids(request: store_pb2.ListIdsRequest) -> None:
    """Store.ListIds."""
    problems = Problems()
    problems.text("namespace", request.namespace, limits.NAME_BYTES)
    problems.number("limit", request.limit, 1, limits.PAGE_MAX)
    problems.raise_any()


def check_list_children(request: store_pb2.ListChildrenRequest) -> None:
    """Store.ListChildren."""
    problems = Problems()
    problems.text("namespace", request.namespace, limits.NAME_BYTES)
    problems.job_id("parent_id", request.parent_id)
    _check_view(problems, request.view)
    _check_page(problems, request)
    problems.raise_any()


# -- the owner's changes ---------------------------------------------------------------------------------------------


def check_update(request: store_pb2.UpdateRequest) -> None:
    """Store.Update. Whether the job's status allows the fields is the store's rule, not checked here."""
    problems = Problems()
    _check_name(problems, request.namespace, request.id)
    _check_view(problems, request.view)
    problems.text("etag", request.etag, limits.TOKEN_BYTES)
    problems.text("request_id", request.request_id, limits.NAME_BYTES)
    problems.labels("labels", dict(request.labels.entries))
    if request.HasField("ttl"):
        problems.duration("ttl", request.ttl, limits.TTL_MIN_MS, limits.TTL_MAX_MS)
    problems.content("payload", request.payload)
    problems.text("content_type", request.content_type, limits.NAME_BYTES)
    problems.number("priority", request.priority, limits.PRIORITY_MIN, limits.PRIORITY_MAX)
    _check_start(problems, "run_time", request, request)
    if request.status and request.status not in _STATUSES:
        problems.add("status", "is not a known status")
    problems.content("result", request.result)
    _check_error(problems, request.error)
    if request.HasField("progress"):
        problems.progress("progress", request.progress)
    problems.raise_any()


def check_delete(request: store_pb2.DeleteRequest) -> None:
    """Store.Delete."""
    problems = Problems()
    _check_name(problems, request.namespace, request.id)
    problems.text("etag", request.etag, limits.TOKEN_BYTES)
    problems.raise_any()


def check_cancel(request: store_pb2.CancelRequest) -> None:
    """Store.Cancel."""
    problems = Problems()
    _check_name(problems, request.namespace, request.id)
    problems.free_text("reason", request.reason, limits.REASON_BYTES)
    if request.HasField("grace"):
        problems.duration("grace", request.grace, 0, limits.GRACE_MAX_MS)
    problems.raise_any()


# -- claim and settle ------------------------------------------------------------------------------------------------


def check_claim(request: store_pb2.ClaimRequest) -> None:
    """Store.Claim."""
    problems = Problems()
    _check_queues(problems, request.queues)
    problems.text("worker_id", request.worker_id, limits.NAME_BYTES)
    problems.number("max_jobs", request.max_jobs, 1, limits.IN_FLIGHT_MAX)
    if request.HasField("lease_duration"):
        _check_lease_duration(problems, "lease_duration", request)
    _check_wait(problems, request)
    problems.raise_any()


def check_claim_stream(request: store_pb2.ClaimStreamRequest) -> None:
    """Store.ClaimStream."""
    problems = Problems()
    _check_queues(problems, request.queues)
    problems.text("worker_id", request.worker_id, limits.NAME_BYTES)
    problems.text("session_id", request.session_id, limits.NAME_BYTES)
    problems.number("epoch", request.epoch, 0, 2**62)
    problems.size("held", len(request.held), 0, limits.IN_FLIGHT_MAX)
    for index, lease in enumerate(request.held):
        check_lease(problems, f"held[{index}]", lease)
    problems.number("max_in_flight", request.max_in_flight, 1, limits.IN_FLIGHT_MAX)
    if request.HasField("lease_duration"):
        _check_lease_duration(problems, "lease_duration", request)
    if request.HasField("keepalive_interval"):
        problems.duration(
            "keepalive_interval", request.keepalive_interval, limits.KEEPALIVE_MIN_MS, limits.KEEPALIVE_MAX_MS
        )
    if request.HasField("receipt_timeout"):
        problems.duration("receipt_timeout", request.receipt_timeout, limits.LEASE_MIN_MS, limits.LEASE_MAX_MS)
    problems.raise_any()


def check_heartbeat(request: store_pb2.HeartbeatRequest) -> None:
    """Store.Heartbeat."""
    problems = Problems()
    problems.size("leases", len(request.leases), 1, limits.BATCH)
    problems.text("worker_id", request.worker_id, limits.NAME_BYTES)
    for index, beat in enumerate(request.leases):
        check_lease(problems, f"leases[{index}].lease", beat.lease)
        if beat.HasField("progress"):
            problems.progress(f"leases[{index}].progress", beat.progress)
    problems.raise_any()


def check_settlement(settlement: store_pb2.Settlement) -> store_pb2.LeaseRef:
    """Store.Complete, Fail, Release, and each item of Store.BatchSettle. Answers the lease concerned."""
    problems = Problems()
    match settlement.WhichOneof("verb"):
        case "complete":
            problems.content("result", settlement.complete.result)
            verb: store_pb2.CompleteRequest | store_pb2.FailRequest | store_pb2.ReleaseRequest = settlement.complete
        case "fail":
            _check_error(problems, settlement.fail.error)
            verb = settlement.fail
            _check_delay(problems, settlement.fail)
        case "release":
            verb = settlement.release
            _check_delay(problems, settlement.release)
        case _:
            problems.add("verb", "is required")
            problems.raise_any()
            raise AssertionError("unreachable")
    check_lease(problems, "lease", verb.lease)
    _check_durability(problems, verb.durability)
    problems.raise_any()
    return verb.lease


def _check_delay(problems: Problems, request: store_pb2.FailRequest | store_pb2.ReleaseRequest) -> None:
    if request.HasField("delay"):
        problems.duration("delay", request.delay, 0, limits.DELAY_MAX_MS)


def check_reclaim_stale(request: store_pb2.ReclaimStaleRequest) -> None:
    """Store.ReclaimStale."""
    problems = Problems()
    if request.HasField("heartbeat_before"):
        problems.timestamp("heartbeat_before", request.heartbeat_before)
    _check_page(problems, request)
    problems.raise_any()


# -- queues ----------------------------------------------------------------------------------------------------------


def check_list_queues(request: admin_pb2.ListQueuesRequest) -> None:
    """Admin.ListQueues."""
    problems = Problems()
    problems.text("namespace", request.namespace, limits.NAME_BYTES)
    _check_page(problems, request)
    problems.raise_any()


def check_get_queue(request: admin_pb2.GetQueueRequest) -> None:
    """Admin.GetQueue."""
    problems = Problems()
    _check_queue(problems, "ref", request.ref)
    problems.raise_any()


# -- parts of requests -----------------------------------------------------------------------------------------------


def check_lease(problems: Problems, field: str, lease: store_pb2.LeaseRef) -> None:
    """A lease as delivered."""
    problems.text(f"{field}.namespace", lease.namespace, limits.NAME_BYTES)
    problems.job_id(f"{field}.id", lease.id)
    problems.text(f"{field}.token", lease.token, limits.TOKEN_BYTES, required=True)


def _check_name(problems: Problems, namespace: str, job_id: str) -> None:
    problems.text("namespace", namespace, limits.NAME_BYTES)
    problems.job_id("id", job_id)


def _check_view(problems: Problems, view: int) -> None:
    if view not in _VIEWS:
        problems.add("view", "is not a known view")


def _check_wait(problems: Problems, request: store_pb2.GetRequest | store_pb2.ClaimRequest) -> None:
    if request.HasField("wait"):
        problems.duration("wait", request.wait, 0, limits.WAIT_MAX_MS)


def _check_page(
    problems: Problems,
    request: store_pb2.ListChildrenRequest | store_pb2.ReclaimStaleRequest | admin_pb2.ListQueuesRequest,
) -> None:
    problems.number("page_size", request.page_size, 1, limits.PAGE_MAX)
    problems.free_text("page_token", request.page_token, limits.PAGE_TOKEN_BYTES)


def _check_queues(problems: Problems, queues: Sequence[store_pb2.QueueRef]) -> None:
    problems.size("queues", len(queues), 1, limits.QUEUES)
    seen: set[tuple[str, str]] = set()
    for index, ref in enumerate(queues):
        _check_queue(problems, f"queues[{index}]", ref)
        name = (ref.namespace or limits.DEFAULT_NAMESPACE, ref.queue)
        if name in seen:
            problems.add(f"queues[{index}]", "is listed twice")
        seen.add(name)


def _check_queue(problems: Problems, field: str, ref: store_pb2.QueueRef) -> None:
    problems.text(f"{field}.namespace", ref.namespace, limits.NAME_BYTES)
    problems.text(f"{field}.queue", ref.queue, limits.NAME_BYTES, required=True)


def _check_lease_duration(
    problems: Problems, field: str, holder: job_pb2.Job | store_pb2.ClaimRequest | store_pb2.ClaimStreamRequest
) -> None:
    problems.duration(field, holder.lease_duration, limits.LEASE_MIN_MS, limits.LEASE_MAX_MS)


def _check_error(problems: Problems, error: job_pb2.JobError) -> None:
    problems.text("error.code", error.code, limits.NAME_BYTES)
    problems.text("error.type", error.type, limits.NAME_BYTES)


def _check_durability(problems: Problems, wish: store_pb2.DurabilityRequest) -> None:
    if wish.level not in store_pb2.Durability.values():
        problems.add("durability.level", "is not a known level")
    elif wish.level not in (store_pb2.DURABILITY_UNSPECIFIED, store_pb2.DURABILITY_ENGINE):
        raise not_served(f"durability {store_pb2.Durability.Name(wish.level)}")
