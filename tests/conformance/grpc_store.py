"""The verbs over a real socket, their errors turned back into what the store raised."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import grpc
from jobwire.v1 import admin_pb2, admin_pb2_grpc, store_pb2, store_pb2_grpc

from tests.errors import store_error

_Answer = TypeVar("_Answer")


class GrpcStore:
    """`Verbs` through the generated stubs."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._store: store_pb2_grpc.StoreAsyncStub = store_pb2_grpc.StoreStub(channel)
        self._admin: admin_pb2_grpc.AdminAsyncStub = admin_pb2_grpc.AdminStub(channel)

    async def create(self, request: store_pb2.CreateRequest) -> store_pb2.CreateResponse:
        return await _answer(self._store.Create(request))

    async def batch_create(self, request: store_pb2.BatchCreateRequest) -> store_pb2.BatchCreateResponse:
        return await _answer(self._store.BatchCreate(request))

    async def get(self, request: store_pb2.GetRequest) -> store_pb2.GetResponse:
        return await _answer(self._store.Get(request))

    async def batch_get(self, request: store_pb2.BatchGetRequest) -> store_pb2.BatchGetResponse:
        return await _answer(self._store.BatchGet(request))

    async def exists(self, request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        return await _answer(self._store.Exists(request))

    async def list_ids(self, request: store_pb2.ListIdsRequest) -> store_pb2.ListIdsResponse:
        return await _answer(self._store.ListIds(request))

    async def list_children(self, request: store_pb2.ListChildrenRequest) -> store_pb2.ListChildrenResponse:
        return await _answer(self._store.ListChildren(request))

    async def update(self, request: store_pb2.UpdateRequest) -> store_pb2.UpdateResponse:
        return await _answer(self._store.Update(request))

    async def delete(self, request: store_pb2.DeleteRequest) -> store_pb2.DeleteResponse:
        return await _answer(self._store.Delete(request))

    async def cancel(self, request: store_pb2.CancelRequest) -> store_pb2.CancelResponse:
        return await _answer(self._store.Cancel(request))

    async def claim(self, request: store_pb2.ClaimRequest) -> store_pb2.ClaimResponse:
        return await _answer(self._store.Claim(request))

    async def heartbeat(self, request: store_pb2.HeartbeatRequest) -> store_pb2.HeartbeatResponse:
        return await _answer(self._store.Heartbeat(request))

    async def complete(self, request: store_pb2.CompleteRequest) -> store_pb2.CompleteResponse:
        return await _answer(self._store.Complete(request))

    async def fail(self, request: store_pb2.FailRequest) -> store_pb2.FailResponse:
        return await _answer(self._store.Fail(request))

    async def release(self, request: store_pb2.ReleaseRequest) -> store_pb2.ReleaseResponse:
        return await _answer(self._store.Release(request))

    async def batch_settle(self, request: store_pb2.BatchSettleRequest) -> store_pb2.BatchSettleResponse:
        return await _answer(self._store.BatchSettle(request))

    async def reclaim_stale(self, request: store_pb2.ReclaimStaleRequest) -> store_pb2.ReclaimStaleResponse:
        return await _answer(self._store.ReclaimStale(request))

    async def list_queues(self, request: admin_pb2.ListQueuesRequest) -> admin_pb2.ListQueuesResponse:
        return await _answer(self._admin.ListQueues(request))

    async def get_queue(self, request: admin_pb2.GetQueueRequest) -> admin_pb2.GetQueueResponse:
        return await _answer(self._admin.GetQueue(request))


async def _answer(call: Awaitable[_Answer]) -> _Answer:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise store_error(error) from error
