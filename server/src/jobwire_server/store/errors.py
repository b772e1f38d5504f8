"""The one error of the store layer: a reason of the contract, which fixes the gRPC code, and what the reason carries.

StoreError
reason   -> jobwire.v1.ErrorReason       (google.rpc.ErrorInfo.reason)
code     -> gRPC status code, by reason  (the table `CODES`)
"""

from __future__ import annotations

from collections.abc import Mapping

from jobwire.v1 import job_pb2, store_pb2

MESSAGE_BYTES = 1_000

# What the server itself writes into a job's `error`.
LEASE_EXPIRED = job_pb2.JobError(code="LEASE_EXPIRED", message="the lease ran out without a heartbeat")
EXPIRED = job_pb2.JobError(code="EXPIRED", message="nobody claimed the job within its queue timeout")

_INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _NOT_FOUND, _ALREADY_EXISTS, _PERMISSION_DENIED = 3, 4, 5, 6, 7
_RESOURCE_EXHAUSTED, _FAILED_PRECONDITION, _ABORTED, _UNIMPLEMENTED, _UNAVAILABLE = 8, 9, 10, 12, 14
_UNAUTHENTICATED = 16

CODES: Mapping[job_pb2.ErrorReason.ValueType, int] = {
    job_pb2.ERROR_REASON_FIELD_INVALID: _INVALID_ARGUMENT,
    job_pb2.ERROR_REASON_JOB_NOT_FOUND: _NOT_FOUND,
    job_pb2.ERROR_REASON_PARENT_NOT_FOUND: _NOT_FOUND,
    job_pb2.ERROR_REASON_JOB_EXISTS: _ALREADY_EXISTS,
    job_pb2.ERROR_REASON_DEDUP_MISMATCH: _ALREADY_EXISTS,
    job_pb2.ERROR_REASON_DEDUP_HELD: _ALREADY_EXISTS,
    job_pb2.ERROR_REASON_LEASE_LOST: _FAILED_PRECONDITION,
    job_pb2.ERROR_REASON_ILLEGAL_TRANSITION: _FAILED_PRECONDITION,
    job_pb2.ERROR_REASON_ETAG_MISMATCH: _ABORTED,
    job_pb2.ERROR_REASON_QUEUE_FULL: _RESOURCE_EXHAUSTED,
    job_pb2.ERROR_REASON_ENGINE_FULL: _RESOURCE_EXHAUSTED,
    job_pb2.ERROR_REASON_OVERLOADED: _RESOURCE_EXHAUSTED,
    job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE: _UNAVAILABLE,
    job_pb2.ERROR_REASON_DRAINING: _UNAVAILABLE,
    job_pb2.ERROR_REASON_NOT_SERVED: _UNIMPLEMENTED,
    job_pb2.ERROR_REASON_CREDENTIALS_INVALID: _UNAUTHENTICATED,
    job_pb2.ERROR_REASON_PERMISSION_DENIED: _PERMISSION_DENIED,
    job_pb2.ERROR_REASON_DEADLINE_EXCEEDED: _DEADLINE_EXCEEDED,
    job_pb2.ERROR_REASON_NOT_CONFIGURED: _FAILED_PRECONDITION,
    job_pb2.ERROR_REASON_ANSWER_TOO_LARGE: _RESOURCE_EXHAUSTED,
    job_pb2.ERROR_REASON_STREAM_SUPERSEDED: _ABORTED,
}


class StoreError(Exception):
    """A refusal that the contract knows.

    `message` is for people, names what was wrong and holds no secret; `metadata` goes into `ErrorInfo` (e.g. the
    holder's `id`); `fields` maps each invalid field to what is wrong with it (FIELD_INVALID only);
    `retry_after_ms` goes into `RetryInfo` (RESOURCE_EXHAUSTED only).
    """

    def __init__(
        self,
        reason: job_pb2.ErrorReason.ValueType,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        retry_after_ms: int = 0,
    ) -> None:
        self.reason = reason
        self.message = message.encode("utf-8", "replace")[:MESSAGE_BYTES].decode("utf-8", "ignore")
        self.metadata = dict(metadata or {})
        self.fields = dict(fields or {})
        self.retry_after_ms = retry_after_ms
        super().__init__(self.message)

    @property
    def code(self) -> int:
        """The gRPC status code."""
        return CODES[self.reason]

    @property
    def reason_name(self) -> str:
        """The reason as `ErrorInfo` carries it: without the enum's prefix."""
        return job_pb2.ErrorReason.Name(self.reason).removeprefix("ERROR_REASON_")

    def as_item(self) -> store_pb2.ItemError:
        """The error as one item's outcome in a batch answer."""
        return store_pb2.ItemError(
            code=self.code,
            message=self.message,
            reason=self.reason,
            metadata=self.metadata,
            field=next(iter(self.fields), ""),
        )


def invalid(field: str, problem: str) -> StoreError:
    """FIELD_INVALID for one field."""
    return StoreError(job_pb2.ERROR_REASON_FIELD_INVALID, f"{field}: {problem}", fields={field: problem})


def not_served(what: str) -> StoreError:
    """NOT_SERVED: the contract has it, this release does not."""
    return StoreError(job_pb2.ERROR_REASON_NOT_SERVED, f"{what} is not served by this release")


def not_found(namespace: str, job_id: str) -> StoreError:
    """JOB_NOT_FOUND."""
    return StoreError(job_pb2.ERROR_REASON_JOB_NOT_FOUND, f"no job {job_id!r} in namespace {namespace!r}")


def parent_not_found(namespace: str, parent_id: str) -> StoreError:
    """PARENT_NOT_FOUND."""
    return StoreError(
        job_pb2.ERROR_REASON_PARENT_NOT_FOUND,
        f"no parent job {parent_id!r} in namespace {namespace!r}",
        metadata={"id": parent_id},
    )


def job_exists(namespace: str, job_id: str) -> StoreError:
    """JOB_EXISTS."""
    return StoreError(
        job_pb2.ERROR_REASON_JOB_EXISTS,
        f"job {job_id!r} exists already in namespace {namespace!r}",
        metadata={"id": job_id},
    )


def dedup_mismatch(key: str, first_id: str) -> StoreError:
    """DEDUP_MISMATCH: the key belongs to the job `first_id`."""
    return StoreError(
        job_pb2.ERROR_REASON_DEDUP_MISMATCH,
        f"the dedup key {key!r} belongs to job {first_id!r}, made by another request",
        metadata={"id": first_id},
    )


def etag_mismatch(job_id: str, current: str) -> StoreError:
    """ETAG_MISMATCH."""
    return StoreError(
        job_pb2.ERROR_REASON_ETAG_MISMATCH,
        f"the etag of job {job_id!r} is {current!r} by now",
        metadata={"etag": current},
    )


def illegal_transition(job_id: str, status: job_pb2.JobStatus.ValueType) -> StoreError:
    """ILLEGAL_TRANSITION, by an Update."""
    name = job_pb2.JobStatus.Name(status)
    return StoreError(
        job_pb2.ERROR_REASON_ILLEGAL_TRANSITION,
        f"job {job_id!r} ({name}) does not allow a change of these fields",
        metadata={"status": name},
    )


def lease_lost(job_id: str) -> StoreError:
    """LEASE_LOST."""
    return StoreError(job_pb2.ERROR_REASON_LEASE_LOST, f"the token does not hold the lease of job {job_id!r}")


def draining() -> StoreError:
    """DRAINING."""
    return StoreError(job_pb2.ERROR_REASON_DRAINING, "this server is shutting down; nothing was done")


def engine_unavailable(what: str) -> StoreError:
    """ENGINE_UNAVAILABLE."""
    return StoreError(job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, what)
