"""`grpc://`, `grpcs://`: through a jobwire server."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc

from jobwire._connection import Answer, Connection
from jobwire._endpoint import Endpoint
from jobwire._errors import DeadlineExceeded, JobwireError, ResourceExhausted, Unavailable
from jobwire.v1 import store_pb2

from ._errors import StoreUnavailableError
from ._verbs import refusal

_TIMEOUT_SECONDS = 10.0


class RemoteVerbs(Connection):
    """The verbs as calls, repeated while the server is unavailable: each request can be sent twice."""

    def __init__(self, target: str, *, tls: bool) -> None:
        super().__init__(Endpoint(target, grpc.ssl_channel_credentials() if tls else None), _TIMEOUT_SECONDS)

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        """Store.Create."""
        return await _answer(self._create(request))

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        """Store.Get."""
        return await _answer(self._call(self._store.Get, request))

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        """Store.Update."""
        return await _answer(self._call(self._store.Update, request))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        """Store.Delete."""
        return await _answer(self._call(self._store.Delete, request))

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        """Store.Exists."""
        return await _answer(self._call(self._store.Exists, request))

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        """Store.ListIds."""
        return await _answer(self._call(self._store.ListIds, request))


async def _answer(call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except (Unavailable, DeadlineExceeded, ResourceExhausted) as error:
        raise StoreUnavailableError(str(error)) from error
    except JobwireError as error:
        raise refusal(error.reason, error.message, error.metadata) from error
