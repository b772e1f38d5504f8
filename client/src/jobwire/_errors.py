# ruff: noqa: N818 - the names are those of the gRPC codes
"""What can go wrong: one class per gRPC code, finer where a caller has something else to do.

JobwireError                code, reason, message, metadata
├── InvalidArgument         fields: what is wrong with each
├── NotFound
├── AlreadyExists           job_id: who has the id or the dedup key
├── FailedPrecondition
│   ├── LeaseLost
│   └── IllegalTransition   status: what the job's status is
├── Aborted
│   └── EtagMismatch        etag: the current one
├── ResourceExhausted       retry_after: seconds
├── Unavailable
├── DeadlineExceeded
├── Unimplemented
├── Unauthenticated
└── PermissionDenied

Branch on the class or on `reason`, never on the message.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from jobwire.v1 import job_pb2, store_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class JobwireError(Exception):
    """A call that was refused or failed. Codes without a class of their own are raised as this one."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.reason = reason
        """`jobwire.v1.ErrorReason` without its prefix, e.g. `JOB_EXISTS`; empty when jobwire did not answer."""
        self.metadata = dict(metadata or {})
        """What the reason carries, e.g. the holder's `id`."""
        self.fields = dict(fields or {})
        """InvalidArgument only: what is wrong with each field (of an item in a batch: with the first)."""
        self.retry_after = retry_after
        """ResourceExhausted only: seconds to wait, where the server said."""


class InvalidArgument(JobwireError):
    """A field is malformed, missing or outside its limit; `fields` names each."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(JobwireError):
    """No such job, or its record has expired."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(JobwireError):
    """The id is taken, or the dedup key came back with another request."""

    code = grpc.StatusCode.ALREADY_EXISTS

    @property
    def job_id(self) -> str:
        """The job that has the id or the key."""
        return self.metadata.get("id", "")


class FailedPrecondition(JobwireError):
    """The state of the job or of the deployment does not allow the call."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class LeaseLost(FailedPrecondition):
    """The token does not hold the job's lease any more. Stop working on it; retrying is useless."""


class IllegalTransition(FailedPrecondition):
    """The job's status does not allow the change."""

    @property
    def status(self) -> str:
        """The job's status, e.g. `JOB_STATUS_RUNNING`."""
        return self.metadata.get("status", "")


class Aborted(JobwireError):
    """The call lost a race."""

    code = grpc.StatusCode.ABORTED


class EtagMismatch(Aborted):
    """The given etag is not the current one. Read again, then retry."""

    @property
    def etag(self) -> str:
        """The current etag."""
        return self.metadata.get("etag", "")


class ResourceExhausted(JobwireError):
    """A queue, the engine or the server is full, or a message too large; `retry_after` where waiting helps."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(JobwireError):
    """Server or engine cannot be reached. The call may or may not have been carried out."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(JobwireError):
    """No answer in time. The call may or may not have been carried out."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Unimplemented(JobwireError):
    """This server does not serve the verb or field."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Unauthenticated(JobwireError):
    """No or wrong credentials."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(JobwireError):
    """These credentials may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


_BY_REASON: Mapping[str, type[JobwireError]] = {
    "LEASE_LOST": LeaseLost,
    "ILLEGAL_TRANSITION": IllegalTransition,
    "ETAG_MISMATCH": EtagMismatch,
}
_BY_CODE: Mapping[grpc.StatusCode, type[JobwireError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        Aborted,
        ResourceExhausted,
        Unavailable,
        DeadlineExceeded,
        Unimplemented,
        Unauthenticated,
        PermissionDenied,
    )
}


def _class_of(code: grpc.StatusCode, reason: str) -> type[JobwireError]:
    return _BY_REASON.get(reason) or _BY_CODE.get(code, JobwireError)


def error_of_call(error: grpc.RpcError) -> JobwireError:
    """The error of a failed call, sync or aio, with the details of its trailer."""
    # Both kinds of error are also the finished call, which the types do not say.
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    code, message = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        # Our own cancels never come here. This is the end of a server that cuts off what it no longer waits for.
        code = grpc.StatusCode.UNAVAILABLE
    reason, metadata, fields, retry_after = "", {}, {}, None
    for detail in _details(error).details:
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            fields = {violation.field: violation.description for violation in bad.field_violations}
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    return _class_of(code, reason)(
        message, code=code, reason=reason, metadata=metadata, fields=fields, retry_after=retry_after
    )


def _details(error: grpc.Call | grpc.aio.AioRpcError) -> status_pb2.Status:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:  # a proxy's, not ours: the code and message still stand
                break
    return status_pb2.Status()


def error_of_item(item: store_pb2.ItemError) -> JobwireError:
    """The error of one item of a batch."""
    code = _CODES.get(item.code, grpc.StatusCode.UNKNOWN)
    # A newer server may know reasons that this client does not.
    known = item.reason in job_pb2.ErrorReason.values()
    reason = job_pb2.ErrorReason.Name(item.reason).removeprefix("ERROR_REASON_") if known else ""
    fields = {item.field: item.message} if item.field else {}
    return _class_of(code, reason)(item.message, code=code, reason=reason, metadata=dict(item.metadata), fields=fields)
