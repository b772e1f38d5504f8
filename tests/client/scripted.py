"""A server on a real socket whose answers a test writes: for what a healthy server never does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from jobwire.v1 import store_pb2

Answerer = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class Scripted:
    """`script["Verb"] = coroutine function` answers a verb of Store; `of("Verb")` are the requests that came.

    Of a streaming verb it writes to the context.
    """

    def __init__(self) -> None:
        self.script: dict[str, Answerer] = {}
        self._requests: list[tuple[str, Message]] = []

    def of(self, verb: str) -> list[Any]:
        """The requests of a verb, in order."""
        return [request for name, request in self._requests if name == verb]

    def handler(self) -> grpc.GenericRpcHandler:
        """All verbs."""
        methods = store_pb2.DESCRIPTOR.services_by_name["Store"].methods
        return grpc.method_handlers_generic_handler(
            "jobwire.v1.Store",
            {
                method.name: grpc.unary_unary_rpc_method_handler(
                    functools.partial(self._answer, method.name),
                    request_deserializer=GetMessageClass(method.input_type).FromString,
                    response_serializer=GetMessageClass(method.output_type).SerializeToString,
                )
                for method in methods
                if not method.server_streaming
            }
            | {
                method.name: grpc.unary_stream_rpc_method_handler(
                    functools.partial(self._stream, method.name),
                    request_deserializer=GetMessageClass(method.input_type).FromString,
                    response_serializer=GetMessageClass(method.output_type).SerializeToString,
                )
                for method in methods
                if method.server_streaming
            },
        )

    async def _answer(self, verb: str, request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        self._requests.append((verb, request))
        return await self.script[verb](request, context)

    async def _stream(self, verb: str, request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._requests.append((verb, request))
        await self.script[verb](request, context)


@contextlib.asynccontextmanager
async def serving(scripted: Scripted, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address of a server that answers so."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((scripted.handler(),))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, message: str, *details: Message
) -> NoReturn:
    """Ends a call with details in the standard trailer."""
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    trailer = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, message, trailing_metadata=trailer)


async def create_all(request: store_pb2.BatchCreateRequest, context: Any) -> store_pb2.BatchCreateResponse:
    """A BatchCreate that creates everything."""
    return store_pb2.BatchCreateResponse(
        results=[store_pb2.BatchCreateResult(response=created(item)) for item in request.requests]
    )


async def create_one(request: store_pb2.CreateRequest, context: Any) -> store_pb2.CreateResponse:
    """A Create that creates."""
    return created(request)


def created(request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
    """The answer to a Create."""
    response = store_pb2.CreateResponse(created=True)
    response.job.id = request.job_id
    return response
