"""Store.Update: the owner's change. All given fields change together, or none does."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import etag_mismatch, illegal_transition, invalid, not_found
from jobwire_server.store.prepare import cut_error
from jobwire_server.store.times import duration_ms, timestamp_ms

from .record import Name, Record
from .step import Step

_NOT_FIELDS = {"namespace", "id", "etag", "request_id", "view"}
_WHILE_PENDING = {"payload", "content_type", "priority", "run_time", "delay"}
_STATE_ONLY = {"status", "result", "error", "progress"}
_QUEUE_ONLY = {"priority", "run_time", "delay"}


def update(step: Step, name: Name, request: store_pb2.UpdateRequest) -> job_pb2.Job:
    """Raises JOB_NOT_FOUND, ETAG_MISMATCH, ILLEGAL_TRANSITION, FIELD_INVALID. A repeat by request id, if no other came
    between, is answered like the first.
    """
    full = request.view == job_pb2.JOB_VIEW_FULL
    record = step.find(name)
    if record is None:
        raise not_found(*name)
    if request.request_id and request.request_id == record.update_mark:
        return record.answer(full=full)
    check_etag(record, request.etag)
    fields = {field.name for field, _ in request.ListFields()} - _NOT_FIELDS
    _check_allowed(record, fields)
    run_at = step.now + duration_ms(request.delay) if request.HasField("delay") else timestamp_ms(request.run_time)
    if run_at > step.now + limits.YEAR_MS:
        raise invalid("run_time", "is more than 366 days ahead")
    if not fields:
        return record.answer(full=full)

    _set_content(record, request)
    starts = request.HasField("run_time") or request.HasField("delay")
    if starts and run_at > step.now:
        step.wait(record, job_pb2.WAIT_REASON_SCHEDULED, run_at)
    if request.HasField("priority"):
        _set_priority(step, record, request.priority)
    if starts and run_at <= step.now and not record.ready:
        step.become_ready(record)
    if request.status:
        step.set_status(record, request.status)
    if request.HasField("ttl"):
        record.job.ttl.CopyFrom(request.ttl)
        _restart_retention(step, record)
    record.update_mark = request.request_id
    step.changed(record, bump=fields != {"progress"})
    return record.answer(full=full)


def check_etag(record: Record, etag: str) -> None:
    """Raises ETAG_MISMATCH if an etag is given and is not the current one."""
    if etag and etag != record.etag:
        raise etag_mismatch(record.job.id, record.etag)


def _check_allowed(record: Record, fields: set[str]) -> None:
    job = record.job
    if not job.queue:
        forbidden = fields & _QUEUE_ONLY
    elif job.status == job_pb2.JOB_STATUS_PENDING:
        forbidden = fields & _STATE_ONLY
    else:
        forbidden = fields & (_STATE_ONLY | _WHILE_PENDING)
    if forbidden:
        raise illegal_transition(job.id, job.status)


def _set_content(record: Record, request: store_pb2.UpdateRequest) -> None:
    job = record.job
    if request.HasField("labels"):
        job.labels.clear()
        job.labels.update(request.labels.entries)
    if request.HasField("payload"):
        job.payload = request.payload
    if request.HasField("content_type"):
        job.content_type = request.content_type
    if request.HasField("result"):
        job.result = request.result
    if request.HasField("error"):
        set_error(job, request.error)
    if request.HasField("progress"):
        job.progress.CopyFrom(request.progress)


def set_error(job: job_pb2.Job, error: job_pb2.JobError) -> None:
    """Cut to its limits; an empty one is none."""
    job.ClearField("error")
    if error.ByteSize():
        job.error.CopyFrom(cut_error(error))


def _set_priority(step: Step, record: Record, priority: int) -> None:
    if record.ready and priority != record.job.priority:
        step.move_line(record, priority)
    record.job.priority = priority


def _restart_retention(step: Step, record: Record) -> None:
    """Rule 10: from now for state-only jobs, from the end for ended ones; a live job's starts when it ends."""
    if not record.job.queue:
        step.keep_until(record, record.retained_until(step.now))
    elif record.ended:
        step.keep_until(record, record.retained_until(timestamp_ms(record.job.finish_time)))
