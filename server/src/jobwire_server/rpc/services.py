"""Where services register: handlers of their methods, and what is answered in their place.

Two answers that gRPC would give in its own words are ours here: to bytes that do not parse as the method's request, and
to calls that come before there is a store to serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from jobwire_server.store.errors import engine_unavailable, invalid

from .calls import Context
from .errors import abort

_UNDECODABLE = object()

# Generic only in the types, not at run time.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Services(grpc.GenericRpcHandler):
    """Stands for the server in the generated `add_..._to_server` functions."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._awaited: tuple[str, ...] = ()

    def expect(self, *services: str) -> None:
        """These will register later; until then their calls are answered UNAVAILABLE."""
        self._awaited = tuple(f"/{service}/" for service in services)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """As `grpc.Server` has it."""
        self._handlers |= {f"/{service}/{name}": _decoded(handler) for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """As `grpc.Server` has it. The same handlers come by the other way too."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of a call's method; None: there is no such method."""
        method = handler_call_details.method
        if handler := self._handlers.get(method):
            return handler
        if not self._handlers and method.startswith(self._awaited):
            return grpc.unary_unary_rpc_method_handler(_too_early)
        return None


async def _too_early(_request: object, context: Context) -> None:
    await abort(context, engine_unavailable("the engine has not answered since this server started"))


def _decoded(handler: Handler) -> Handler:
    """The handler, answering INVALID_ARGUMENT to bytes that do not parse."""
    streams = handler.response_streaming
    behavior: Any = handler.unary_stream if streams else handler.unary_unary
    parse: Any = handler.request_deserializer

    def deserialize(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return _UNDECODABLE

    async def handle(request: Any, context: Context) -> Any:
        if request is _UNDECODABLE:
            await abort(context, invalid("request", "does not parse as this method's message"))
        return await behavior(request, context)

    async def handle_unary(request: Any, context: Context) -> Any:
        try:
            return await handle(request, context)
        except grpc.aio.AbortError:
            # gRPC knows the status since `abort`, and ends the call with it whatever is returned. Those between us and
            # it would take the exception for a bug of ours.
            return None

    make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
    return make(
        handle if streams else handle_unary,
        request_deserializer=deserialize,
        response_serializer=handler.response_serializer,
    )
