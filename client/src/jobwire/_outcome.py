"""How a handler ends its job: by what it returns, or by what it raises.

returns bytes, str or None   Complete
raises Release               Release
raises Retry                 Fail, with a delay
raises NonRetryable          Fail, for good
raises anything else         Fail
"""

from __future__ import annotations

import random
import traceback

from jobwire.v1 import job_pb2, store_pb2

from ._limits import BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS, BACKOFF_MULTIPLIER, ERROR_BYTES, NAME_BYTES
from ._requests import Content, Span, content, duration

Result = Content | None


class NonRetryable(Exception):  # noqa: N818 - reads as what a handler says
    """Raised by a handler: the job FAILED, whatever attempts are left. `code` is a short word of your choosing."""

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class Retry(Exception):  # noqa: N818
    """Raised by a handler: the attempt failed; the next begins after `delay` (a timedelta, or seconds)."""

    def __init__(self, delay: Span, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.delay = delay
        self.code = code


class Release(Exception):  # noqa: N818
    """Raised by a handler: gives the job back untouched, for `delay` or at once. Costs no attempt."""

    def __init__(self, delay: Span | None = None) -> None:
        super().__init__(delay)
        self.delay = delay


def returned(lease: store_pb2.LeaseRef, result: object) -> store_pb2.Settlement:
    """The settlement of a handler that returned."""
    if result is None:
        return store_pb2.Settlement(complete=store_pb2.CompleteRequest(lease=lease))
    if isinstance(result, bytes | str):
        return store_pb2.Settlement(complete=store_pb2.CompleteRequest(lease=lease, result=content(result)))
    raise TypeError(f"a handler returns bytes, str or None, not {type(result).__name__}")


def raised(lease: store_pb2.LeaseRef, job: job_pb2.Job, error: BaseException) -> store_pb2.Settlement:
    """The settlement of a handler that raised."""
    match error:
        case Release():
            return released(lease, error.delay)
        case Retry():
            return failed(lease, error_of(error, error.code), error.delay)
        case NonRetryable():
            what = error_of(error, error.code)
            what.retryable = False
            return failed(lease, what)
        case _:
            return failed(lease, error_of(error), backoff(job))


def failed(lease: store_pb2.LeaseRef, error: job_pb2.JobError, delay: Span | None = None) -> store_pb2.Settlement:
    """A failed attempt."""
    return store_pb2.Settlement(fail=store_pb2.FailRequest(lease=lease, error=error, delay=duration(delay)))


def released(lease: store_pb2.LeaseRef, delay: Span | None = None) -> store_pb2.Settlement:
    """A job given back."""
    return store_pb2.Settlement(release=store_pb2.ReleaseRequest(lease=lease, delay=duration(delay)))


def error_of(error: BaseException, code: str = "") -> job_pb2.JobError:
    """An exception as the contract has it: text that cannot be refused, and not larger than is kept."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = str(error)
    except Exception:  # whatever an application's class does, its job must be settled
        text = "the exception has no text: its __str__ failed"
    message = _text(text)[: ERROR_BYTES // 2]
    # Of a long traceback the end tells most.
    stack = _text("".join(traceback.format_exception(error)))[-(ERROR_BYTES - len(message)) :]
    return job_pb2.JobError(
        code=_name(code or "HANDLER_FAILED"),
        message=message.decode("utf-8", "ignore"),
        type=_name(name),
        stack=stack.decode("utf-8", "ignore"),
    )


def backoff(job: job_pb2.Job) -> float:
    """The delay before the next attempt, in seconds, after the job's retry policy: full jitter."""
    first = job.retry.initial_backoff.ToNanoseconds() / 1e9 or BACKOFF_FIRST_SECONDS
    cap = job.retry.max_backoff.ToNanoseconds() / 1e9 or BACKOFF_CAP_SECONDS
    growth = job.retry.multiplier or BACKOFF_MULTIPLIER
    try:
        most = min(cap, first * growth**job.failures)
    except OverflowError:
        most = cap
    return random.uniform(0, most)  # noqa: S311 - spreads load, guards nothing


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # unpaired surrogates cannot travel


def _name(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable.encode("utf-8", "replace")[:NAME_BYTES].decode("utf-8", "ignore")
