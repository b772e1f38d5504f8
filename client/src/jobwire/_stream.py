"""Claim streams: a standing claim, read message by message and cancelled on leaving its `with` block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import grpc

from jobwire.v1 import store_pb2, store_pb2_grpc

from ._errors import JobwireError, error_of_call


class ClaimStream:
    """`async with client.claim_stream(...) as stream: async for message in stream: ...`.

    Each message is a `ClaimStreamResponse`; skip events you do not know. The iteration ends when the server ends the
    stream and raises a JobwireError when it breaks. Leaving the block takes no lease away: settle or release what you
    hold. Jobs that were on their way are claimed all the same and come back when their leases run out.
    """

    def __init__(self, stub: store_pb2_grpc.StoreAsyncStub, request: store_pb2.ClaimStreamRequest) -> None:
        self._stub = stub
        self._request = request
        self._call: grpc.aio.UnaryStreamCall[store_pb2.ClaimStreamRequest, store_pb2.ClaimStreamResponse] | None = None

    async def __aenter__(self) -> Self:
        self._call = self._stub.ClaimStream(self._request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A call that is merely dropped goes on until the connection ends.
        if self._call is not None:
            self._call.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> store_pb2.ClaimStreamResponse:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        return message

    async def read(self) -> store_pb2.ClaimStreamResponse | None:
        """The next message, or None at the server's end of the stream."""
        if self._call is None:
            raise RuntimeError("a claim stream is read inside its `async with` block")
        try:
            message = await self._call.read()
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except asyncio.CancelledError:
            raise_unless_cancelled()
            raise
        return message if isinstance(message, store_pb2.ClaimStreamResponse) else None


class SyncClaimStream:
    """`ClaimStream` for plain scripts: `with client.claim_stream(...) as stream: for message in stream: ...`."""

    def __init__(self, stub: store_pb2_grpc.StoreStub, request: store_pb2.ClaimStreamRequest) -> None:
        self._stub = stub
        self._request = request
        self._cancelled = False

    def __enter__(self) -> Self:
        self._call = self._stub.ClaimStream(self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Ends the stream, from any thread; the iteration then ends as if the server had ended it."""
        self._cancelled = True
        self._call.cancel()

    def __iter__(self) -> Iterator[store_pb2.ClaimStreamResponse]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            if not self._cancelled:
                raise error_of_call(error) from error


def raise_unless_cancelled() -> None:
    """Tells a call that ended because its client was closed from one whose caller was cancelled: grpc.aio raises
    CancelledError for both, but only the second is a cancellation of this task.
    """
    task = asyncio.current_task()
    if task is not None and not task.cancelling():
        raise JobwireError("the client was closed", code=grpc.StatusCode.CANCELLED)
