"""`memory://`: a dict with the rules of a job that is state only. For tests and one replica."""

from __future__ import annotations

import heapq
import secrets
import time
from collections.abc import Callable
from typing import Self

from jobwire.v1 import job_pb2, store_pb2

from ._verbs import Verbs, refusal

_Name = tuple[str, str]

_CHANGES = {"status", "payload", "content_type", "result", "error", "ttl"}


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class MemoryVerbs(Verbs):
    """The verbs on a dict. `clock` answers ms since 1970. No verb awaits, so each is atomic in its event loop."""

    def __init__(self, clock: Callable[[], int] = _wall_clock) -> None:
        self._clock = clock
        self._jobs: dict[_Name, job_pb2.Job] = {}
        self._expiry: list[tuple[int, _Name]] = []
        """By expire time; an entry whose job has another by now counts for nothing."""
        self._openings = 0

    async def open(self) -> Self:
        """Counts those who opened it: each event loop does for itself."""
        self._openings += 1
        return self

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """Raises JOB_EXISTS."""
        name = (request.job.namespace, request.job_id)
        if self._find(name) is not None:
            raise refusal("JOB_EXISTS", f"there is a job {request.job_id!r} already", {})
        job = job_pb2.Job()
        job.CopyFrom(request.job)
        job.id, job.version = request.job_id, 1
        job.status = job.status or job_pb2.JOB_STATUS_PENDING
        job.etag = f"{secrets.token_urlsafe(6)}.1"
        now = self._clock()
        job.create_time.FromMilliseconds(now)
        job.update_time.FromMilliseconds(now)
        self._jobs[name] = job
        self._keep(name, job)
        return store_pb2.CreateResponse(job=_copy(job), created=True)

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        """Raises JOB_NOT_FOUND."""
        return store_pb2.GetResponse(job=_copy(self._must_find(request.namespace, request.id)))

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        """Raises JOB_NOT_FOUND, ETAG_MISMATCH."""
        job = self._must_find(request.namespace, request.id)
        _check_etag(job, request.etag)
        if not any(field.name in _CHANGES for field, _ in request.ListFields()):
            return store_pb2.UpdateResponse(job=_copy(job))
        for field in ("payload", "content_type", "result"):
            if request.HasField(field):
                setattr(job, field, getattr(request, field))
        if request.HasField("error"):
            job.error.CopyFrom(request.error)
            if not request.error.ByteSize():
                job.ClearField("error")
        job.status = request.status or job.status
        if request.HasField("ttl"):
            job.ttl.CopyFrom(request.ttl)
            self._keep((request.namespace, request.id), job)
        job.version += 1
        nonce, _, revision = job.etag.rpartition(".")
        job.etag = f"{nonce}.{int(revision) + 1}"
        job.update_time.FromMilliseconds(self._clock())
        return store_pb2.UpdateResponse(job=_copy(job))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        """Raises ETAG_MISMATCH."""
        name = (request.namespace, request.id)
        job = self._find(name)
        if job is None:
            return store_pb2.DeleteResponse(existed=False)
        _check_etag(job, request.etag)
        del self._jobs[name]
        return store_pb2.DeleteResponse(existed=True)

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        """Whether it is there."""
        return store_pb2.ExistsResponse(exists=self._find((request.namespace, request.id)) is not None)

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        """By create time, descending; of the same millisecond, by id, descending."""
        self._forget_expired()
        found = (
            (job.create_time.ToMilliseconds(), job_id)
            for (namespace, job_id), job in self._jobs.items()
            if namespace == request.namespace
        )
        return store_pb2.ListIdsResponse(ids=[job_id for _, job_id in heapq.nlargest(request.limit, found)])

    async def close(self) -> None:
        """Once as many have closed as opened it, everything is gone, as with its process."""
        self._openings -= 1
        if not self._openings:
            self._jobs.clear()
            self._expiry.clear()

    def _find(self, name: _Name) -> job_pb2.Job | None:
        self._forget_expired()
        return self._jobs.get(name)

    def _must_find(self, namespace: str, job_id: str) -> job_pb2.Job:
        job = self._find((namespace, job_id))
        if job is None:
            raise refusal("JOB_NOT_FOUND", f"there is no job {job_id!r}", {})
        return job

    def _keep(self, name: _Name, job: job_pb2.Job) -> None:
        until = self._clock() + job.ttl.ToMilliseconds()
        job.expire_time.FromMilliseconds(until)
        heapq.heappush(self._expiry, (until, name))
        if len(self._expiry) > 2 * len(self._jobs) + 100:
            # Most entries count for nothing: of jobs that were renewed again and again, or deleted.
            self._expiry = [(job.expire_time.ToMilliseconds(), name) for name, job in self._jobs.items()]
            heapq.heapify(self._expiry)

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._expiry and self._expiry[0][0] <= now:
            until, name = heapq.heappop(self._expiry)
            job = self._jobs.get(name)
            if job is not None and job.expire_time.ToMilliseconds() == until:
                del self._jobs[name]


def _check_etag(job: job_pb2.Job, etag: str) -> None:
    if etag and etag != job.etag:
        raise refusal("ETAG_MISMATCH", f"the etag of job {job.id!r} is {job.etag!r}", {"etag": job.etag})


def _copy(job: job_pb2.Job) -> job_pb2.Job:
    copy = job_pb2.Job()
    copy.CopyFrom(job)
    return copy
