"""Store.Delete and Store.Cancel."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store.errors import not_found

from .record import Name
from .step import Step
from .update import check_etag


def delete(step: Step, name: Name, etag: str) -> bool:
    """Whether there was one. Raises ETAG_MISMATCH; a job that is not there is no error, whatever the etag."""
    record = step.find(name)
    if record is None:
        return False
    check_etag(record, etag)
    step.delete(record)
    return True


def cancel(step: Step, name: Name, reason: str, grace_ms: int) -> store_pb2.CancelResponse:
    """Ends a PENDING or state-only job, asks the worker of a running one, leaves an ended one as it is.

    Raises JOB_NOT_FOUND.
    """
    record = step.find(name)
    if record is None:
        raise not_found(*name)
    if record.ended:
        cancelled = record.job.status == job_pb2.JOB_STATUS_CANCELLED
    elif record.running:
        step.ask_to_stop(record, reason, step.now + grace_ms)
        cancelled = record.cancel_at <= step.now
        if cancelled:
            step.lose(record)
    else:
        cancelled = True
        if record.job.queue:
            step.end(record, job_pb2.JOB_STATUS_CANCELLED)
        else:
            step.set_status(record, job_pb2.JOB_STATUS_CANCELLED)
        record.job.cancel.CopyFrom(job_pb2.Cancellation(requested=True, reason=reason))
        step.changed(record)
    if cancelled:
        outcome = store_pb2.CANCEL_OUTCOME_CANCELLED
    else:
        outcome = store_pb2.CANCEL_OUTCOME_ALREADY_ENDED if record.ended else store_pb2.CANCEL_OUTCOME_REQUESTED
    return store_pb2.CancelResponse(outcome=outcome, job=record.answer())
