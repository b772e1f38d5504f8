"""Store.Create: one job after the other, each whole or not at all."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import StoreError, dedup_mismatch, invalid, job_exists, lease_lost, parent_not_found
from jobwire_server.store.prepare import Creation
from jobwire_server.store.times import set_timestamp, timestamp_ms

from .record import Record
from .step import Step


def create(step: Step, creation: Creation) -> store_pb2.CreateResponse | StoreError:
    """In this order: the dedup key decides, then the id, then the parent, then the run time (rules 1 and 11)."""
    earlier = _holder_of_key(step, creation)
    if earlier is not None:
        if _is_repeat(creation, earlier):
            return _answer(earlier, created=True)
        if earlier.request_hash != creation.request_hash:
            return dedup_mismatch(creation.job.dedup.key, earlier.job.id)
        return _answer(earlier, created=False)
    same_id = step.find((creation.job.namespace, creation.job.id))
    if same_id is not None:
        if _is_repeat(creation, same_id):
            return _answer(same_id, created=True)
        return job_exists(creation.job.namespace, creation.job.id)
    refusal = _refuse_parent(step, creation)
    if refusal is not None:
        return refusal
    run_at = step.now + creation.delay_ms if creation.delay_ms else timestamp_ms(creation.job.run_time)
    if run_at > step.now + limits.YEAR_MS:
        return invalid("job.run_time", "is more than 366 days ahead")
    return _answer(_store(step, creation, run_at), created=True)


def _store(step: Step, creation: Creation, run_at: int) -> Record:
    record = Record(job_pb2.Job(), creation.nonce, creation.request_id, creation.request_hash)
    job = record.job
    job.CopyFrom(creation.job)
    job.ClearField("run_time")
    job.version = 1
    set_timestamp(job.create_time, step.now)
    set_timestamp(job.update_time, step.now)
    if job.queue:
        job.status = job_pb2.JOB_STATUS_PENDING
    elif job.status == job_pb2.JOB_STATUS_RUNNING:
        set_timestamp(job.start_time, step.now)
    elif record.ended:
        set_timestamp(job.finish_time, step.now)
    step.add(record)
    if job.queue and run_at > step.now:
        step.wait(record, job_pb2.WAIT_REASON_SCHEDULED, run_at)
    elif job.queue:
        step.become_ready(record)
    return record


def _holder_of_key(step: Step, creation: Creation) -> Record | None:
    """The job of the dedup key. A key whose job is gone is as good as none, and will point at the new job."""
    key = Record(creation.job, "", "", "").dedup_key
    job_id = step.partition.dedup.get(key) if key else None
    return step.find((creation.job.namespace, job_id)) if job_id else None


def _is_repeat(creation: Creation, record: Record) -> bool:
    return creation.request_id != "" and creation.request_id == record.request_id


def _refuse_parent(step: Step, creation: Creation) -> StoreError | None:
    parent_id = creation.job.parent_id
    if not parent_id:
        return None
    parent = step.find((creation.job.namespace, parent_id))
    if parent is None:
        return parent_not_found(creation.job.namespace, parent_id)
    if creation.parent_token and not parent.holds(creation.parent_token):
        return lease_lost(parent_id)
    return None


def _answer(record: Record, *, created: bool) -> store_pb2.CreateResponse:
    return store_pb2.CreateResponse(job=record.answer(), created=created, durability=store_pb2.DURABILITY_ENGINE)
