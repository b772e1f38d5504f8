"""The interface that agents program against."""

from __future__ import annotations

from typing import Protocol

from ._record import JobRecord, JobStatus, Json


class JobStore(Protocol):
    """Job state, shared by all replicas of an agent. Every verb may raise `StoreUnavailableError`.

    Ids are the agent's own: 1-256 bytes of printable text, at most 8 levels separated by "/". Payload and result are
    JSON values of at most 1,900,000 bytes as UTF-8 JSON; they come back exactly as given, or are refused with
    `InvalidJobError`: tuples, other types, keys that are no strings, NaN, infinities, lone surrogates, values nested
    more than 100 deep, integers beyond 64 bits.
    """

    async def create(
        self, job_id: str, payload: Json = None, *, ttl_seconds: float, status: JobStatus = JobStatus.PENDING
    ) -> JobRecord:
        """Stores a new job, for `ttl_seconds` (1 s to 366 days) from now. Raises JobConflictError."""
        ...

    async def get(self, job_id: str) -> JobRecord | None:
        """The job; None if there is none, or its time is over."""
        ...

    async def update(
        self,
        job_id: str,
        *,
        status: JobStatus | None = None,
        payload: Json = None,
        result: Json = None,
        error: str | None = None,
        ttl_seconds: float | None = None,
        etag: str | None = None,
    ) -> JobRecord:
        """Changes what is given, all of it at once; None stays as it is. The job as it is then.

        With `ttl_seconds` it is kept so long from now; without, as long as it would have been. With `etag` only if that
        is the current one. An error text is cut at 16 KiB; an empty one takes the error away. Raises JobNotFoundError,
        EtagMismatchError.
        """
        ...

    async def delete(self, job_id: str, *, etag: str | None = None) -> bool:
        """Removes the job; whether there was one. Raises EtagMismatchError."""
        ...

    async def exists(self, job_id: str) -> bool:
        """Whether there is such a job."""
        ...

    async def list_ids(self, *, limit: int = 100) -> list[str]:
        """The newest ids of this agent, newest first; at most 1,000, whatever `limit` says."""
        ...

    async def close(self) -> None:
        """Lets go of connections. What is called afterwards opens them again."""
        ...
