"""One channel of the asynchronous client, and how calls are made on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from jobwire.v1 import admin_pb2_grpc, store_pb2, store_pb2_grpc

from ._batching import Batcher
from ._endpoint import Endpoint
from ._errors import JobwireError, error_of_call, error_of_item
from ._retry import retrying
from ._stream import raise_unless_cancelled

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)
Settled: TypeAlias = store_pb2.CompleteResponse | store_pb2.FailResponse | store_pb2.ReleaseResponse
"""The answer to a settlement."""


class Connection:
    """The channel, its stubs, and what all verbs share: retries, deadlines, natural batching."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        asyncio.get_running_loop()  # a channel made elsewhere would belong to another loop, and hang in this one
        self.endpoint = endpoint
        self._timeout = timeout
        self._channel = endpoint.aio_channel()
        self._store = store_pb2_grpc.StoreStub(self._channel)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self._creates: Batcher[store_pb2.CreateRequest, store_pb2.CreateResponse] = Batcher(self._send_creates)
        self._settlements: Batcher[store_pb2.Settlement, Settled] = Batcher(self._send_settlements)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel. Calls still running fail."""
        await self._channel.close()

    async def _call(self, method: grpc.aio.UnaryUnaryMultiCallable[Request, Answer], request: Request) -> Answer:
        """A call that is safe to repeat."""
        return await retrying(lambda left: self._try(method, request, left), self._timeout)

    async def _try(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Request, Answer], request: Request, timeout: float
    ) -> Answer:
        """A call, once."""
        try:
            return await method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except asyncio.CancelledError:
            raise_unless_cancelled()
            raise

    async def _create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        return await retrying(lambda left: self._creates.submit(request, left), self._timeout)

    async def _send_creates(
        self, batch: Sequence[store_pb2.CreateRequest]
    ) -> Sequence[store_pb2.CreateResponse | JobwireError]:
        # One goes as itself: its error then carries all details (as `alone`). The callers repeat, each what is theirs.
        if len(batch) == 1:
            return [await self._try(self._store.Create, batch[0], self._timeout)]
        request = store_pb2.BatchCreateRequest(requests=batch)
        return [
            create_outcome(result)
            for result in (await self._try(self._store.BatchCreate, request, self._timeout)).results
        ]

    async def _settle(self, settlement: store_pb2.Settlement) -> Settled:
        return await retrying(lambda left: self._settlements.submit(settlement, left), self._timeout)

    async def _send_settlements(self, batch: Sequence[store_pb2.Settlement]) -> Sequence[Settled | JobwireError]:
        if len(batch) == 1:
            verb, one = alone(batch[0])
            return [await self._try(getattr(self._store, verb), one, self._timeout)]
        request = store_pb2.BatchSettleRequest(settlements=batch)
        return [
            settle_outcome(result)
            for result in (await self._try(self._store.BatchSettle, request, self._timeout)).results
        ]


def alone(settlement: store_pb2.Settlement) -> tuple[str, Message]:
    """The verb that makes one settlement by itself, and its request: its error then carries all details."""
    match settlement.WhichOneof("verb"):
        case "complete":
            return "Complete", settlement.complete
        case "fail":
            return "Fail", settlement.fail
        case _:
            return "Release", settlement.release


def create_outcome(result: store_pb2.BatchCreateResult) -> store_pb2.CreateResponse | JobwireError:
    """One item's answer or error."""
    return error_of_item(result.error) if result.HasField("error") else result.response


def settle_outcome(result: store_pb2.SettlementResult) -> Settled | JobwireError:
    """One item's answer or error."""
    match result.WhichOneof("outcome"):
        case "complete":
            return result.complete
        case "fail":
            return result.fail
        case "release":
            return result.release
        case _:
            return error_of_item(result.error)
