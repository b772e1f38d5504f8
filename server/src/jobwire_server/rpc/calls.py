"""What every call has around it: a slot, a deadline, a size limit on its answer, and the error funnel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from jobwire.v1 import job_pb2

from jobwire_server.store import limits
from jobwire_server.store.errors import StoreError, draining, not_served

from . import measures
from .errors import abort, foreseen

Context = grpc.aio.ServicerContext[Any, Any]

# No call runs longer than this, plus what it was asked to wait.
CALL_SECONDS = 30.0
# gRPC itself cancels a call at its caller's deadline; ours comes just after it, for the case that it does not.
DEADLINE_SLACK = 0.05
OVERLOADED_RETRY_MS = 1_000

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Slots:
    """At most `limit` calls of one class at a time; one more is refused at once with OVERLOADED, never queued."""

    def __init__(self, what: str, limit: int) -> None:
        self.free = asyncio.Event()
        """Set while there is no call."""
        self.free.set()
        self._what = what
        self._limit = limit
        self._taken = 0

    def __enter__(self) -> None:
        if self._taken >= self._limit:
            raise StoreError(
                job_pb2.ERROR_REASON_OVERLOADED,
                f"this server is at its limit of {self._limit} {self._what}",
                retry_after_ms=OVERLOADED_RETRY_MS,
            )
        self._taken += 1
        self.free.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken -= 1
        if not self._taken:
            self.free.set()


class Calls:
    """Runs handlers. Calls that wait, streams among them, have slots of their own: they last long and cost little."""

    def __init__(self, max_calls: int, max_streams: int) -> None:
        self._brief = Slots("concurrent calls", max_calls)
        self._lasting = Slots("concurrent streams and waiting calls", max_streams)
        self._draining = False

    def drain(self) -> None:
        """Refuses every new call with DRAINING."""
        self._draining = True

    async def none_left(self) -> None:
        """Returns when no call is in progress."""
        await self._lasting.free.wait()
        await self._brief.free.wait()

    async def answer(
        self,
        context: Context,
        verb: Callable[[_Request], Awaitable[_Response]],
        request: _Request,
        wait_ms: int = 0,
    ) -> _Response:
        """A unary call: what `verb` answers, or the status of what it raised."""
        method = verb.__name__
        began = time.perf_counter()
        measures.describe(request)
        try:
            if self._draining:
                raise draining()
            with self._lasting if wait_ms > 0 else self._brief:
                async with asyncio.timeout(_seconds_left(context, wait_ms)):
                    response = await verb(request)
            size = response.ByteSize()
            if size > limits.MESSAGE_BYTES:
                raise StoreError(
                    job_pb2.ERROR_REASON_ANSWER_TOO_LARGE,
                    f"the answer has {size} bytes, at most {limits.MESSAGE_BYTES} fit a message: ask for less",
                )
        except BaseException as raised:
            outcome = "cancelled"
            try:
                error = foreseen(raised, method)
                outcome = error.reason_name.lower()
            except asyncio.CancelledError:
                measures.cancelled_by_caller()
                raise
            finally:
                measures.unary_ended(method, outcome, began)
            await abort(context, error)
        measures.unary_ended(method, "ok", began)
        measures.describe_answer(response)
        return response

    async def stream(self, context: Context, run: Callable[[], Awaitable[None]], method: str) -> None:
        """A streaming call that lasts until it ends itself, its caller does, or it is refused."""
        try:
            if self._draining:
                raise draining()
            with self._lasting:
                await run()
        except BaseException as raised:
            outcome = "cancelled"
            try:
                error = foreseen(raised, method)
                outcome = error.reason_name.lower()
            finally:
                measures.stream_ended(method, outcome)
            await abort(context, error)
        measures.stream_ended(method, "ok")


def unserved(verb: str) -> Any:
    """A handler for an RPC that this release does not serve. It fits any RPC, so its type says nothing."""

    async def handler(servicer: Any, request: Any, context: Context) -> None:
        await abort(context, not_served(verb))

    return handler


def _seconds_left(context: Context, wait_ms: int) -> float:
    most = CALL_SECONDS + wait_ms / 1_000
    # None without a deadline, whatever its type says.
    left: float | None = context.time_remaining()
    return most if left is None else min(most, left + DEADLINE_SLACK)
