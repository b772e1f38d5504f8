"""What time does to a partition, and Store.ReclaimStale."""

from __future__ import annotations

from collections.abc import Iterator

from jobwire.v1 import job_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import EXPIRED, invalid
from jobwire_server.store.times import timestamp_ms
from jobwire_server.store.types import Sweep

from .order import Order
from .record import Name, Record
from .step import Step


def sweep(step: Step) -> Sweep:
    """One slice of each timer, in the order of deadlines. Never early: an entry counts from its very millisecond on."""
    partition = step.partition
    timers = (partition.due, partition.leases, partition.gone)
    slices = [timer.upto(step.now, limits.SWEEP_SLICE) for timer in timers]
    due, leases, gone = (list(_standing(step, *pair)) for pair in zip(timers, slices, strict=True))
    expired = [record for record in due if record.ready]
    late_ms = max((step.now - record.deadline for record in due if not record.ready), default=0)
    for record in due:
        if record.ready:
            _expire(step, record)
        else:
            step.become_ready(record)
            step.changed(record)
    for record in leases:
        step.lose(record)
    for record in gone:
        step.remove(record)
    deadlines = [timer.first()[0] for timer in (partition.due, partition.leases) if timer]
    return Sweep(
        now_ms=step.now,
        next_ms=min(deadlines, default=0),
        more=any(len(entries) == limits.SWEEP_SLICE for entries in slices),
        late_ms=late_ms,
        promoted=len(due) - len(expired),
        expired=len(expired),
        removed=len(gone),
        reclaimed=[record.name for record in leases],
    )


def reclaim_stale(step: Step, before_ms: int | None, cursor: str, limit: int) -> tuple[int, list[tuple[str, str]], str]:
    """Looks at up to `limit` leases after the cursor, by deadline.

    Without `before_ms` takes those that ran out; with it, those whose latest heartbeat or claim is before it, strictly.
    """
    leases = step.partition.leases
    entries = leases.after(_from_cursor(cursor), limit + 1)
    more = len(entries) > limit
    looked = entries[:limit]
    if before_ms is None:
        looked = [entry for entry in looked if entry[0] <= step.now]
        more = more and len(looked) == limit
    reclaimed: list[Name] = []
    for record in list(_standing(step, leases, looked)):
        if before_ms is None or timestamp_ms(record.job.heartbeat_time) < before_ms:
            step.lose(record, taken=before_ms is not None)
            reclaimed.append(record.name)
    return len(looked), reclaimed, _to_cursor(looked[-1]) if more else ""


def _standing(step: Step, timer: Order[Name], entries: list[tuple[int, Name]]) -> Iterator[Record]:
    """The records of timer entries. Rule 9: an entry whose record is gone, or stands elsewhere, is dropped."""
    for deadline, name in entries:
        record = step.partition.records.get(name)
        if record is not None and step.partition.timer_of(record) is timer and record.deadline == deadline:
            yield record
        else:
            timer.drop(name)


def _expire(step: Step, record: Record) -> None:
    """Rule 10: nobody claimed it within its queue timeout."""
    record.job.error.CopyFrom(EXPIRED)
    step.end(record, job_pb2.JOB_STATUS_FAILED)
    step.changed(record)


def _to_cursor(entry: tuple[int, Name]) -> str:
    deadline, name = entry
    return "\n".join((str(deadline), *name))


def _from_cursor(cursor: str) -> tuple[int, Name]:
    if not cursor:
        return 0, ("", "")
    try:
        deadline, namespace, job_id = cursor.split("\n")
        return int(deadline), (namespace, job_id)
    except ValueError:
        raise invalid("page_token", "is not one that this verb answered") from None
