"""One atomic step on one partition, at one instant: the transitions of a job, which keep record and indexes agreed.

Rule 9: whatever changes a job's state does so through a method of `Step`, which moves the record, its line, its timer,
its parent's counts and the notices together.
"""

from __future__ import annotations

from collections import Counter

from jobwire.v1 import job_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import LEASE_EXPIRED
from jobwire_server.store.times import duration_ms, set_timestamp
from jobwire_server.store.types import Notice, NoticeKind

from .partition import Partition, State
from .record import SETTLED, TERMINAL, Lease, Name, Record

_COUNTED = {
    job_pb2.JOB_STATUS_SUCCEEDED: "succeeded",
    job_pb2.JOB_STATUS_FAILED: "failed",
    job_pb2.JOB_STATUS_CANCELLED: "cancelled",
}


class Step:
    """A partition, the time, and who asks. Leaving the `with` block wakes who waits for jobs that became ready."""

    def __init__(self, state: State, partition: int, replica: str) -> None:
        self._state = state
        self.partition: Partition = state.partitions[partition]
        self.now = state.clock()
        self.replica = replica
        self._made_ready: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        for queue, count in self._made_ready.items():
            if count > 0:
                self._wake(queue, count)

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, name: Name) -> Record | None:
        """The record, unless it is gone or its retention has ended: expiry is logical, at the very millisecond."""
        record = self.partition.records.get(name)
        if record is None or (record.expires and self.now >= record.deadline):
            return None
        return record

    # -- the life of a record ----------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Stores a new record with its indexes, in the status that its job has; PENDING jobs with a queue are placed by
        `wait` or `become_ready` next.
        """
        expired = self.partition.records.get(record.name)
        if expired is not None:
            self.remove(expired)
        job = record.job
        self.partition.records[record.name] = record
        self.partition.ids[job.namespace].put(job.id, self.now)
        if record.dedup_key:
            self.partition.dedup[record.dedup_key] = job.id
        if job.parent_id:
            self.partition.children[job.namespace, job.parent_id].put(job.id, self.now)
            parent = self.partition.records.get((job.namespace, job.parent_id))
            record.kin = parent.nonce if parent else ""
            self._count(record, 1, job_pb2.JOB_STATUS_UNSPECIFIED, job.status)
        if record.expires:
            self.keep_until(record, record.retained_until(self.now))

    def remove(self, record: Record) -> None:
        """Takes the record away with every index entry. Its own children, and their index, stay."""
        self._leave(record)
        job = record.job
        self.partition.ids[job.namespace].drop(job.id)
        if job.parent_id:
            self.partition.children[job.namespace, job.parent_id].drop(job.id)
        if record.dedup_key and self.partition.dedup.get(record.dedup_key) == job.id:
            del self.partition.dedup[record.dedup_key]
        del self.partition.records[record.name]
        self._tell_watchers(record)

    def delete(self, record: Record) -> None:
        """Removes it at its owner's wish: a deleted child no longer counts, one whose retention ended does."""
        self.remove(record)
        self._count(record, -1, record.job.status, job_pb2.JOB_STATUS_UNSPECIFIED)

    def changed(self, record: Record, *, bump: bool = True) -> None:
        """A new version; with `bump` (everything but progress) a new etag too."""
        record.job.version += 1
        record.revision += bump
        set_timestamp(record.job.update_time, self.now)
        self._tell_watchers(record)

    # -- transitions -------------------------------------------------------------------------------------------------

    def offer(self, queue: tuple[str, str]) -> None:
        """One job of the queue may be claimed: one who waits for it is to know."""
        self._made_ready[queue] += 1

    def become_ready(self, record: Record) -> None:
        """PENDING, READY, at the end of its line."""
        self.partition.last_seq += 1
        record.seq = self.partition.last_seq
        self._enter_line(record, returning=False)

    def put_back(self, record: Record) -> None:
        """PENDING, READY, in its old place in line."""
        self._enter_line(record, returning=True)

    def move_line(self, record: Record, priority: int) -> None:
        """A READY job gets another priority and keeps its age; its queue deadline stays."""
        self.partition.ready.leave(record.line, record.job.id, charged=False)
        record.job.priority = priority
        self.partition.ready.enter(record.line, record.job.id, record.seq, returning=False)

    def wait(self, record: Record, reason: job_pb2.WaitReason.ValueType, run_at: int) -> None:
        """PENDING, not before `run_at`: SCHEDULED or BACKOFF."""
        self._leave(record)
        record.job.status = job_pb2.JOB_STATUS_PENDING
        record.job.wait_reason = reason
        self._stand(record, run_at)

    def lease(self, record: Record, lease: Lease, worker_id: str) -> None:
        """READY to RUNNING: the one way to get a lease (rule 2)."""
        self.partition.ready.leave(record.line, record.job.id, charged=True)
        self._leave(record)
        job = record.job
        job.status = job_pb2.JOB_STATUS_RUNNING
        job.wait_reason = job_pb2.WAIT_REASON_UNSPECIFIED
        job.attempt += 1
        job.worker_id = worker_id
        set_timestamp(job.start_time, self.now)
        set_timestamp(job.heartbeat_time, self.now)
        record.lease = lease
        self._made_ready[job.namespace, job.queue] -= 1  # if this very step made it ready, nobody need know
        self._stand(record, self.now + min(lease.receipt_ms or lease.lease_ms, lease.lease_ms))
        self.changed(record)

    def heartbeat(self, record: Record) -> None:
        """Extends the lease from now, not beyond its revocation. A heartbeat is the receipt."""
        assert record.lease is not None
        set_timestamp(record.job.heartbeat_time, self.now)
        record.lease.receipt_ms = record.job.undelivered = 0
        deadline = self.now + record.lease.lease_ms
        self._stand(record, min(deadline, record.cancel_at or deadline))

    def ask_to_stop(self, record: Record, reason: str, revoke_at: int) -> None:
        """The worker of a running job is asked; the earliest revocation and the first reason count."""
        assert record.lease is not None
        if record.cancel_at and record.cancel_at <= revoke_at:
            return
        cancel = record.job.cancel
        if not record.cancel_at:
            cancel.requested, cancel.reason = True, reason
        record.cancel_at = revoke_at
        set_timestamp(cancel.deadline, revoke_at)
        self._stand(record, min(record.deadline, revoke_at))
        self.changed(record)
        self._notify(record.lease.replica, NoticeKind.CANCEL, record.job.namespace, record.lease.token)

    def end_attempt(self, record: Record, outcome: job_pb2.AttemptOutcome.ValueType) -> None:
        """Takes the lease and remembers the attempt with its token; the job must go somewhere next."""
        assert record.lease is not None
        job = record.job
        attempt = job.attempts.add(number=job.attempt, worker_id=job.worker_id, outcome=outcome)
        attempt.start_time.CopyFrom(job.start_time)
        set_timestamp(attempt.finish_time, self.now)
        record.tokens.append(record.lease.token)
        del job.attempts[: -limits.ATTEMPTS_KEPT], record.tokens[: -limits.ATTEMPTS_KEPT]
        if record.lease.replica != self.replica and outcome in SETTLED:
            # A lost lease frees no place on its stream: its worker may be frozen and must speak first.
            self._notify(record.lease.replica, NoticeKind.SETTLED, job.namespace, record.lease.token)
        self._leave(record)
        record.lease = None
        job.ClearField("worker_id")

    def lose(self, record: Record, *, taken: bool = False) -> None:
        """The lease ran out, or (`taken`) ReclaimStale took it: counts like a failure (rule 8), retried at once.

        A job that somebody asked to stop never runs again. One whose receipt never came did not reach its worker: that
        is no loss, until it happens `limits.UNDELIVERED_MAX` times in a row.
        """
        assert record.lease is not None
        job = record.job
        unreceived = record.lease.receipt_ms > 0 and not taken
        if record.cancel_at:
            revoked = record.cancel_at <= self.now
            job.losses += not revoked
            self.end_attempt(record, job_pb2.ATTEMPT_OUTCOME_CANCELLED if revoked else job_pb2.ATTEMPT_OUTCOME_LOST)
            self.end(record, job_pb2.JOB_STATUS_CANCELLED)
        elif unreceived and job.undelivered + 1 < limits.UNDELIVERED_MAX:
            job.undelivered += 1
            self.end_attempt(record, job_pb2.ATTEMPT_OUTCOME_UNDELIVERED)
            self.put_back(record)
        else:
            job.losses += 1
            job.undelivered = 0
            self.end_attempt(record, job_pb2.ATTEMPT_OUTCOME_LOST)
            job.error.CopyFrom(LEASE_EXPIRED)
            if job.failures + job.losses >= job.max_attempts:
                self.end(record, job_pb2.JOB_STATUS_FAILED)
            else:
                self.put_back(record)
        self.changed(record)

    def end(self, record: Record, status: job_pb2.JobStatus.ValueType) -> None:
        """A job with a queue ends (rule 5: for good); its retention starts (rule 10)."""
        self._leave(record)
        self.set_status(record, status)
        self.keep_until(record, record.retained_until(self.now))

    def set_status(self, record: Record, status: job_pb2.JobStatus.ValueType) -> None:
        """Writes the status with what follows from it: start and finish time, the parent's counts."""
        job = record.job
        if status == job_pb2.JOB_STATUS_RUNNING and job.status != status:
            set_timestamp(job.start_time, self.now)
        if status not in TERMINAL:
            job.ClearField("finish_time")
        elif not record.ended:
            set_timestamp(job.finish_time, self.now)
        self._count(record, 0, job.status, status)
        job.status = status
        job.wait_reason = job_pb2.WAIT_REASON_UNSPECIFIED

    def keep_until(self, record: Record, expire_time: int) -> None:
        """When an ended or state-only record goes."""
        self._stand(record, expire_time)

    # -- what transitions are made of --------------------------------------------------------------------------------

    def _enter_line(self, record: Record, *, returning: bool) -> None:
        self._leave(record)
        record.job.status = job_pb2.JOB_STATUS_PENDING
        record.job.wait_reason = job_pb2.WAIT_REASON_READY
        self.partition.ready.enter(record.line, record.job.id, record.seq, returning=returning)
        self._stand(record, self.now + duration_ms(record.job.queue_timeout))
        self.offer((record.job.namespace, record.job.queue))

    def _leave(self, record: Record) -> None:
        if record.ready:
            self.partition.ready.leave(record.line, record.job.id, charged=False)
        self.partition.timer_of(record).drop(record.name)

    def _stand(self, record: Record, deadline: int) -> None:
        record.deadline = deadline
        self.partition.timer_of(record).put(record.name, deadline)

    def _count(
        self,
        child: Record,
        total: int,
        before: job_pb2.JobStatus.ValueType,
        after: job_pb2.JobStatus.ValueType,
    ) -> None:
        job = child.job
        parent = self.partition.records.get((job.namespace, job.parent_id)) if job.parent_id else None
        if parent is None or parent.nonce != child.kin:
            return
        counts = parent.job.child_counts
        counts.total += total
        for status, change in ((before, -1), (after, 1)):
            if status in _COUNTED:
                setattr(counts, _COUNTED[status], getattr(counts, _COUNTED[status]) + change)

    def _tell_watchers(self, record: Record) -> None:
        for replica in sorted(record.watchers):
            self._notify(replica, NoticeKind.CHANGED, *record.name)
        record.watchers.clear()

    def _wake(self, queue: tuple[str, str], count: int) -> None:
        waiters = self.partition.waiters[queue]
        for expiry, replica in list(waiters):
            if expiry > self.now and count == 0:
                break
            waiters.drop(replica)
            if expiry > self.now:
                self._notify(replica, NoticeKind.READY, *queue)
                count -= 1

    def _notify(self, replica: str, kind: NoticeKind, namespace: str, name: str) -> None:
        self._state.notify(replica, Notice(kind, self.partition.number, namespace, name))
