"""What a caller sees of an error, turned back into what the store raised."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from jobwire.v1 import job_pb2
from jobwire_server.store.errors import CODES, StoreError


def store_error(error: grpc.aio.AioRpcError) -> StoreError:
    """The StoreError that the server turned into this one; checks that the error is as the contract says."""
    trailers: dict[str, Any] = dict(error.trailing_metadata() or ())
    assert "grpc-status-details-bin" in trailers, f"an error without details: {error}"
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, request, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        assert detail.Unpack(info) or detail.Unpack(request) or detail.Unpack(retry)
    assert info.domain == "jobwire.v1"
    found = StoreError(
        job_pb2.ErrorReason.Value(f"ERROR_REASON_{info.reason}"),
        status.message,
        metadata=info.metadata,
        fields={violation.field: violation.description for violation in request.field_violations},
        retry_after_ms=retry.retry_delay.ToMilliseconds(),
    )
    assert status.code == error.code().value[0] == CODES[found.reason]
    return found
