"""Store.Claim on one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobwire.v1 import job_pb2, store_pb2

from jobwire_server.store import limits
from jobwire_server.store.times import duration_ms, set_duration, set_timestamp
from jobwire_server.store.types import Claimed, Wish

from .partition import Claim
from .record import Lease, Record
from .step import Step


def claim(step: Step, wish: Wish) -> Claimed:
    """Takes the next jobs: queues in the order asked, then as `Ready.next` says.

    A repeat under the same token answers the leases it still holds, and takes nothing.
    """
    claims = step.partition.claims
    for token in [token for token, claim in claims.items() if claim.time + limits.CLAIM_REPEATABLE_MS <= step.now]:
        del claims[token]
    waited_ms = 0
    if wish.token not in claims:
        taken, waited_ms = _take(step, wish)
        claims[wish.token] = Claim(step.now, [record.name for record in taken])
    jobs = []
    for index, name in enumerate(claims[wish.token].names):
        record = step.find(name)
        if record is not None and record.holds(f"{wish.token}-{index}"):
            jobs.append(_answer(record))
    more = any(step.partition.ready.next(*queue) for queue in wish.queues)
    if wish.waiting and not more:
        register(step, wish.queues)
    return Claimed(jobs, more, waited_ms)


def look(step: Step, queues: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether a job is ready in each queue; the replica waits for those without."""
    ready = [step.partition.ready.next(*queue) is not None for queue in queues]
    register(step, [queue for queue, is_ready in zip(queues, ready, strict=True) if not is_ready])
    return ready


def pass_on(step: Step, queue: tuple[str, str]) -> None:
    """Another replica is told of a ready job."""
    if step.partition.ready.next(*queue) is not None:
        step.offer(queue)


def register(step: Step, queues: Sequence[tuple[str, str]]) -> None:
    """The replica is told, once per queue, when a job becomes ready there within the expiry."""
    for queue in queues:
        step.partition.waiters[queue].put(step.replica, step.now + limits.WAITER_EXPIRY_MS)


def _take(step: Step, wish: Wish) -> tuple[list[Record], int]:
    taken: list[Record] = []
    waited_ms = 0
    size = 0
    for record in _in_turn(step, wish.queues):
        size += limits.ENVELOPE_BYTES + len(record.job.payload)
        size += job_pb2.Job(labels=record.job.labels).ByteSize() + record.job.error.ByteSize()
        if len(taken) == wish.max_jobs or (taken and size > wish.max_bytes):
            break
        waited_ms = max(waited_ms, step.now - record.deadline + duration_ms(record.job.queue_timeout))
        job_lease = record.job.lease_duration.ToMilliseconds()
        lease = Lease(f"{wish.token}-{len(taken)}", job_lease or wish.lease_ms, wish.receipt_ms, step.replica)
        step.lease(record, lease, wish.worker_id)
        taken.append(record)
    return taken, waited_ms


def _in_turn(step: Step, queues: Sequence[tuple[str, str]]) -> Iterator[Record]:
    """The next job, as long as the caller takes each. Rule 9: an id whose record is gone is dropped, never revived."""
    for queue in queues:
        while place := step.partition.ready.next(*queue):
            line, job_id = place
            record = step.find((line.namespace, job_id))
            if record is not None and record.ready and record.line == line:
                yield record
            else:
                step.partition.ready.leave(line, job_id, charged=False)


def _answer(record: Record) -> store_pb2.ClaimedJob:
    assert record.lease is not None
    claimed = store_pb2.ClaimedJob(job=record.answer(full=True), lease_token=record.lease.token)
    set_duration(claimed.lease_duration, record.lease.lease_ms)
    set_timestamp(claimed.lease_expire_time, record.deadline)
    return claimed
