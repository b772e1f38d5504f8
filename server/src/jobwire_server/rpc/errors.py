"""The one funnel from what a handler raised to a gRPC status with `google.rpc` details.

INTERNAL and UNKNOWN are never an answer of ours: what nobody foresaw is logged as a bug and answered UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from jobwire.v1 import job_pb2

from jobwire_server.store.errors import StoreError, engine_unavailable
from jobwire_server.store.times import set_duration

DOMAIN = "jobwire.v1"
DETAILS_KEY = "grpc-status-details-bin"

# Trailers have a limit of about 8 KiB in all; beyond it a client sees no status at all. The message (below 1 KiB)
# travels twice, once percent-encoded, so this is what is left for the fields.
FIELDS_MAX = 20
FIELDS_BYTES = 2_000

_STATUSES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_log = structlog.get_logger("jobwire.rpc")


def details(error: StoreError) -> bytes:
    """The serialized `google.rpc.Status` of an error."""
    status = status_pb2.Status(code=error.code, message=error.message)
    status.details.append(
        _packed(error_details_pb2.ErrorInfo(reason=error.reason_name, domain=DOMAIN, metadata=error.metadata))
    )
    if error.fields:
        status.details.append(_packed(_bad_request(error)))
    if error.retry_after_ms:
        delay = duration_pb2.Duration()
        set_duration(delay, error.retry_after_ms)
        status.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    serialized: bytes = status.SerializeToString()
    return serialized


def foreseen(raised: BaseException, method: str) -> StoreError:
    """What to answer for an exception. Raises it again if it is the caller's own cancel, or ends the process."""
    match raised:
        case StoreError():
            return raised
        case TimeoutError():
            return StoreError(job_pb2.ERROR_REASON_DEADLINE_EXCEEDED, f"{method} did not end before its deadline")
        case asyncio.CancelledError() if not _is_cancelled():
            # An inner task was cancelled, not this call: without a status the caller would wait for ever.
            _log.error("bug", method=method, error="cancelled from within")
        case grpc.aio.InternalError():
            # A message could not be sent, which is no bug: the call is over, and nobody is there to be answered.
            _log.info("client gone", method=method)
        case Exception():
            _log.error("bug", method=method, exc_info=raised)
        case _:
            raise raised
    return engine_unavailable(f"the server failed to carry out {method}; it may or may not have been done")


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: StoreError) -> NoReturn:
    """Ends a call with an error's status."""
    await context.abort(_STATUSES[error.code], error.message, trailing_metadata=((DETAILS_KEY, details(error)),))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _bad_request(error: StoreError) -> error_details_pb2.BadRequest:
    answer = error_details_pb2.BadRequest()
    size = 0
    for field, problem in list(error.fields.items())[:FIELDS_MAX]:
        size += len(field.encode()) + len(problem.encode()) + 8
        if size > FIELDS_BYTES:
            break
        answer.field_violations.add(field=field, description=problem)
    return answer


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
