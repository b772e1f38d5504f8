"""What can go wrong with a job store, whatever its backend."""

from __future__ import annotations


class JobStoreError(Exception):
    """A verb that was refused or failed. Its subclasses say how; other refusals are raised as this one."""


class JobConflictError(JobStoreError):
    """`create`: there is such a job already."""


class JobNotFoundError(JobStoreError):
    """`update`: there is no such job, or it has expired."""


class EtagMismatchError(JobStoreError):
    """`update`, `delete`: the given etag is not the current one. Read again, then decide.

    `etag`: the current one.
    """

    def __init__(self, message: str, etag: str) -> None:
        super().__init__(message)
        self.etag = etag


class InvalidJobError(JobStoreError, ValueError):
    """An id, ttl or value that no store takes, or a stored value that no JobStore wrote. Repeating is useless."""


class StoreUnavailableError(JobStoreError):
    """The server or the engine does not answer or is full. A verb that changes something was done or not: both may be
    repeated (`create` with the same id then tells by a conflict).
    """
