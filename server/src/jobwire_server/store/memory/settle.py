"""Store.Heartbeat, Complete, Fail and Release: every write of a worker, fenced by its token (rule 3)."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import StoreError, lease_lost, not_found
from jobwire_server.store.times import duration_ms, set_timestamp
from jobwire_server.store.types import Held, SettleResponse

from .record import SETTLED, Name, Record
from .step import Step
from .update import set_error


def heartbeat(step: Step, beat: store_pb2.LeaseHeartbeat) -> store_pb2.HeartbeatResult:
    """Extends the lease. Rule 6: late, but before the reclaim, is in time."""
    record = step.find(_name(beat.lease))
    if record is None or not record.holds(beat.lease.token):
        return store_pb2.HeartbeatResult(state=store_pb2.LEASE_STATE_LOST)
    step.heartbeat(record)
    # The same once more is no change: a repeat whose first try took effect makes no second version.
    if beat.HasField("progress") and not _is_progress_of(record.job, beat.progress):
        record.job.progress.CopyFrom(beat.progress)
        step.changed(record, bump=False)
    result = store_pb2.HeartbeatResult(state=store_pb2.LEASE_STATE_HELD)
    set_timestamp(result.lease_expire_time, record.deadline)
    if record.cancel_at:
        result.state = store_pb2.LEASE_STATE_CANCEL_REQUESTED
        result.cancel.CopyFrom(record.job.cancel)
    return result


def _is_progress_of(job: job_pb2.Job, progress: job_pb2.Progress) -> bool:
    return job.HasField("progress") and bool(job.progress.SerializeToString() == progress.SerializeToString())


def held(step: Step, lease: store_pb2.LeaseRef) -> Held:
    """What became of a token."""
    record = step.find(_name(lease))
    if record is None:
        return Held.LOST
    if record.holds(lease.token):
        return Held.HELD
    return Held.SETTLED if record.outcome_of(lease.token) in SETTLED else Held.LOST


def settle(step: Step, settlement: store_pb2.Settlement) -> SettleResponse | StoreError:
    """Ends a lease. Rule 4: the same token repeating its verb is answered OK and changes nothing, another verb is too
    late.
    """
    match settlement.WhichOneof("verb"):
        case "complete":
            lease, outcome = settlement.complete.lease, job_pb2.ATTEMPT_OUTCOME_COMPLETED
        case "fail":
            lease, outcome = settlement.fail.lease, job_pb2.ATTEMPT_OUTCOME_FAILED
        case _:
            lease, outcome = settlement.release.lease, job_pb2.ATTEMPT_OUTCOME_RELEASED
    record = step.find(_name(lease))
    if record is None:
        return not_found(*_name(lease))
    if record.holds(lease.token):
        step.end_attempt(record, outcome)
        match settlement.WhichOneof("verb"):
            case "complete":
                _complete(step, record, settlement.complete)
            case "fail":
                _fail(step, record, settlement.fail)
            case _:
                _again(step, record, duration_ms(settlement.release.delay))
        step.changed(record)
        return _answer(record, outcome, repeated=False)
    if record.outcome_of(lease.token) == outcome:
        return _answer(record, outcome, repeated=True)
    return lease_lost(record.job.id)


def _complete(step: Step, record: Record, request: store_pb2.CompleteRequest) -> None:
    record.job.undelivered = 0  # the worker's word proves that the job had reached it
    record.job.result = request.result
    record.job.ClearField("error")
    step.end(record, job_pb2.JOB_STATUS_SUCCEEDED)


def _fail(step: Step, record: Record, request: store_pb2.FailRequest) -> None:
    """Rule 8: failures and losses together use up the attempts; the last error stays."""
    job = record.job
    job.failures += 1
    job.undelivered = 0
    set_error(job, request.error)
    final = request.error.HasField("retryable") and not request.error.retryable
    if not record.cancel_at and (final or job.failures + job.losses >= job.max_attempts):
        step.end(record, job_pb2.JOB_STATUS_FAILED)
    else:
        _again(step, record, duration_ms(request.delay))


def _again(step: Step, record: Record, delay_ms: int) -> None:
    """A job that somebody asked to stop never runs again."""
    if record.cancel_at:
        step.end(record, job_pb2.JOB_STATUS_CANCELLED)
    elif delay_ms > 0:
        step.wait(record, job_pb2.WAIT_REASON_BACKOFF, step.now + delay_ms)
    else:
        step.put_back(record)


def _answer(record: Record, outcome: job_pb2.AttemptOutcome.ValueType, *, repeated: bool) -> SettleResponse:
    durability = store_pb2.DURABILITY_ENGINE
    if outcome == job_pb2.ATTEMPT_OUTCOME_COMPLETED:
        return store_pb2.CompleteResponse(repeated_call=repeated, durability=durability)
    if outcome == job_pb2.ATTEMPT_OUTCOME_FAILED:
        return store_pb2.FailResponse(status=record.job.status, repeated_call=repeated, durability=durability)
    return store_pb2.ReleaseResponse(repeated_call=repeated, durability=durability)


def _name(lease: store_pb2.LeaseRef) -> Name:
    return lease.namespace or limits.DEFAULT_NAMESPACE, lease.id
