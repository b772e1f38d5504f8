"""Store.Delete and Store.Cancel."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store.errors import not_found, not_served

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


def cancel(step: Step, name: Name, reason: str) -> store_pb2.CancelResponse:
    """Ends a PENDING or state-only job; leaves an ended one as it is. Raises JOB_NOT_FOUND, NOT_SERVED (RUNNING)."""
    record = step.find(name)
    if record is None:
        raise not_found(*name)
    if record.running:
        raise not_served("Cancel of a running job")
    if record.job.status == job_pb2.JOB_STATUS_CANCELLED:
        outcome = store_pb2.CANCEL_OUTCOME_CANCELLED
    elif record.ended:
        outcome = store_pb2.CANCEL_OUTCOME_ALREADY_ENDED
    else:
        outcome = store_pb2.CANCEL_OUTCOME_CANCELLED
        if record.job.queue:
            step.end(record, job_pb2.JOB_STATUS_CANCELLED)
        else:
            step.set_status(record, job_pb2.JOB_STATUS_CANCELLED)
        record.job.cancel.CopyFrom(job_pb2.Cancellation(requested=True, reason=reason))
        step.changed(record)
    return store_pb2.CancelResponse(outcome=outcome, job=record.answer())
