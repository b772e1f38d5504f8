"""What is stored of one job: the `Job` message itself, and beside it what the contract does not show."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobwire.v1 import job_pb2

from jobwire_server.store.times import duration_ms, set_timestamp, timestamp_ms

from .ready import Line

Name = tuple[str, str]
"""(namespace, id)."""
DedupKey = tuple[str, ...]

TERMINAL = (job_pb2.JOB_STATUS_SUCCEEDED, job_pb2.JOB_STATUS_FAILED, job_pb2.JOB_STATUS_CANCELLED)

SETTLED = (
    job_pb2.ATTEMPT_OUTCOME_COMPLETED,
    job_pb2.ATTEMPT_OUTCOME_FAILED,
    job_pb2.ATTEMPT_OUTCOME_RELEASED,
)
"""How an attempt ends by its worker's word."""


@dataclass(slots=True)
class Lease:
    """The right to run a job."""

    token: str
    lease_ms: int
    receipt_ms: int
    """How long it waits for its first heartbeat; 0: that came, or none is asked for."""
    replica: str
    """Through which it was claimed."""


@dataclass(slots=True)
class Record:
    """A job's record. `job` is complete but for `run_time`, `expire_time` and `lease_expire_time`: see `deadline`."""

    job: job_pb2.Job
    nonce: str
    request_id: str
    request_hash: str
    revision: int = 1
    deadline: int = 0
    """When time next moves the job, ms: queue deadline, run time, lease deadline, or expire time."""
    seq: int = 0
    """Its place in line; given when it first becomes ready, and anew after an owner's or creator's delay."""
    lease: Lease | None = None
    cancel_at: int = 0
    """When the lease of a job that somebody asked to stop is revoked; 0: nobody asked."""
    tokens: list[str] = field(default_factory=list)
    """Of `job.attempts`, one each."""
    update_mark: str = ""
    """The request id of the last Update, if it gave one."""
    kin: str = ""
    """The nonce of the parent that counts it: another of the same id does not."""
    watchers: set[str] = field(default_factory=set)

    @property
    def name(self) -> Name:
        """(namespace, id)."""
        return self.job.namespace, self.job.id

    @property
    def line(self) -> Line:
        """The line in which it waits when READY."""
        return Line(self.job.namespace, self.job.queue, self.job.priority, self.job.tenant)

    @property
    def ended(self) -> bool:
        """Whether its status is terminal."""
        return self.job.status in TERMINAL

    @property
    def expires(self) -> bool:
        """Whether `deadline` is its expire time: ended jobs and state-only ones. Rule 10: no other ever expires."""
        return self.ended or not self.job.queue

    @property
    def running(self) -> bool:
        """Whether a worker holds it."""
        return self.job.status == job_pb2.JOB_STATUS_RUNNING and bool(self.job.queue)

    @property
    def ready(self) -> bool:
        """Whether it stands in its line."""
        return self.job.wait_reason == job_pb2.WAIT_REASON_READY

    @property
    def etag(self) -> str:
        """Never repeats for an id: the nonce differs between records, the revision within one."""
        return f"{self.nonce}.{self.revision}"

    @property
    def dedup_key(self) -> DedupKey | None:
        """Rule 11: a root's key is per (namespace, tenant), a child's per family. Of unlike length, they never meet."""
        job = self.job
        if not job.HasField("dedup"):
            return None
        if job.parent_id:
            return job.namespace, job.id.partition("/")[0], job.tenant, job.dedup.key
        return job.namespace, job.tenant, job.dedup.key

    def retained_until(self, start: int) -> int:
        """The later of `ttl` from `start` and the dedup window from creation, ms."""
        window_end = timestamp_ms(self.job.create_time) + duration_ms(self.job.dedup.window)
        return max(start + duration_ms(self.job.ttl), window_end if self.job.HasField("dedup") else 0)

    def holds(self, token: str) -> bool:
        """Rule 2: whether this token is the live lease."""
        return self.lease is not None and self.lease.token == token

    def outcome_of(self, token: str) -> job_pb2.AttemptOutcome.ValueType:
        """How the attempt under this token ended; UNSPECIFIED if it is not among those remembered."""
        for kept, attempt in zip(self.tokens, self.job.attempts, strict=True):
            if kept == token:
                return attempt.outcome
        return job_pb2.ATTEMPT_OUTCOME_UNSPECIFIED

    def answer(self, *, full: bool = False) -> job_pb2.Job:
        """A copy for a caller: view FULL or BASIC, with the times that `deadline` means just now."""
        job = job_pb2.Job()
        job.CopyFrom(self.job)
        job.etag = self.etag
        if job.child_counts.total <= 0:  # also when children of an earlier job of this id ended
            job.ClearField("child_counts")
        if not full:
            job.ClearField("payload")
            job.ClearField("result")
        if self.expires:
            set_timestamp(job.expire_time, self.deadline)
        elif self.running:
            set_timestamp(job.lease_expire_time, self.deadline)
        elif not self.ready:
            set_timestamp(job.run_time, self.deadline)
        return job
