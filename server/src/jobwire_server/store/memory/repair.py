"""Rule 9: indexes are made to agree with the records."""

from __future__ import annotations

from collections import Counter

from jobwire_server.store.types import Audit, Repair

from .record import Record
from .step import Step


def audit(step: Step) -> Audit:
    """Whether the indexes are as large as the records ask for."""
    partition = step.partition
    records = partition.records.values()
    standing = Counter(id(partition.timer_of(record)) for record in records)
    timers = (partition.due, partition.leases, partition.gone)
    in_line = sum(record.ready for record in records)
    agree = all(len(timer) == standing[id(timer)] for timer in timers) and len(partition.ready.entries()) == in_line
    return Audit(agree, stale=False, cursor="")


def repair(step: Step) -> Repair:
    """The whole walk at once. Memory loses no index entries by itself, only a test takes records away."""
    partition = step.partition
    mended: Counter[str] = Counter()
    for timer in (partition.due, partition.leases, partition.gone):
        for _, name in list(timer):
            record = partition.records.get(name)
            if record is None or partition.timer_of(record) is not timer:
                timer.drop(name)
                mended["timer"] += 1
    for line, job_id, seq in partition.ready.entries():
        record = partition.records.get((line.namespace, job_id))
        if record is None or not (record.ready and record.line == line and record.seq == seq):
            partition.ready.leave(line, job_id, charged=False)
            mended["line"] += 1
    for namespace, ids in partition.ids.items():
        for _, job_id in list(ids):
            if (namespace, job_id) not in partition.records:
                ids.drop(job_id)
                mended["ids"] += 1
    for (namespace, parent_id), children in partition.children.items():
        for _, job_id in list(children):
            if not _is_child(partition.records.get((namespace, job_id)), parent_id):
                children.drop(job_id)
                mended["children"] += 1
    return Repair("", dict(mended))


def _is_child(record: Record | None, parent_id: str) -> bool:
    return record is not None and record.job.parent_id == parent_id
