"""Store.Get, BatchGet, Exists, ListIds, ListChildren, and the queues of Admin: what changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from jobwire.v1 import admin_pb2, job_pb2

from jobwire_server.store import limits
from jobwire_server.store.times import duration_ms, set_timestamp

from .record import Name, Record
from .step import Step


def get(step: Step, name: Name, *, full: bool, watch: bool) -> job_pb2.Job | None:
    """The job now; with `watch`, the asking replica is told of its next change or its removal, once."""
    record = step.find(name)
    if record is None:
        return None
    if watch:
        record.watchers.add(step.replica)
    return record.answer(full=full)


def list_ids(step: Step, namespace: str, limit: int) -> list[tuple[int, str]]:
    """(create time, id) of the newest jobs, descending."""
    newest = step.partition.ids[namespace].descending()
    return list(islice((entry for entry in newest if step.find((namespace, entry[1]))), limit))


def list_children(
    step: Step, parent: Name, after: tuple[int, str], limit: int, *, full: bool
) -> tuple[list[job_pb2.Job], tuple[int, str] | None]:
    """The next children in (create time, id) order, as many as fit one answer; looks at `limit` at most."""
    jobs: list[job_pb2.Job] = []
    size = 0
    cursor = after
    entries = step.partition.children[parent].after(after, limit + 1)
    for entry in entries[:limit]:
        record = step.find((parent[0], entry[1]))
        if record is not None:
            job = record.answer(full=full)
            size += job.ByteSize()
            if jobs and size > limits.ANSWER_BYTES:
                return jobs, cursor
            jobs.append(job)
        cursor = entry
    return jobs, cursor if len(entries) > limit else None


def list_queues(step: Step) -> list[tuple[str, str]]:
    """The queues that hold a live job."""
    return sorted({(record.job.namespace, record.job.queue) for record in _live(step)})


def queue_stats(step: Step, namespace: str, queue: str) -> admin_pb2.QueueStats:
    """What a queue holds, and since when the longest-waiting head of a line is ready."""
    live = [record for record in _live(step) if (record.job.namespace, record.job.queue) == (namespace, queue)]
    ready, running = sum(record.ready for record in live), sum(record.running for record in live)
    stats = admin_pb2.QueueStats(ready=ready, running=running, scheduled=len(live) - ready - running)
    heads = (step.find((namespace, job_id)) for job_id in step.partition.ready.heads(namespace, queue))
    since = [head.deadline - duration_ms(head.job.queue_timeout) for head in heads if head is not None]
    if since:
        set_timestamp(stats.oldest_ready_time, min(since))
    return stats


def _live(step: Step) -> Iterator[Record]:
    return (record for record in step.partition.records.values() if not record.expires)
