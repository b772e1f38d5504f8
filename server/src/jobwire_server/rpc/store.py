"""The Store service: one handler per RPC."""

# ruff: noqa: N802 - handlers bear the contract's names

from __future__ import annotations

import functools

from jobwire.v1 import store_pb2, store_pb2_grpc

from jobwire_server.dispatch.dispatch import Dispatch
from jobwire_server.store.base import Store
from jobwire_server.store.times import duration_ms

from .calls import Calls, Context, unserved


class StoreServicer(store_pb2_grpc.StoreServicer):
    """Reads go straight to the store; whatever may wake somebody, or wait, goes through the dispatch layer."""

    def __init__(self, store: Store, dispatch: Dispatch, calls: Calls) -> None:
        self._store = store
        self._dispatch = dispatch
        self._calls = calls

    async def Create(self, request: store_pb2.CreateRequest, context: Context) -> store_pb2.CreateResponse:
        """Store.Create."""
        return await self._calls.answer(context, self._dispatch.create, request)

    async def BatchCreate(
        self, request: store_pb2.BatchCreateRequest, context: Context
    ) -> store_pb2.BatchCreateResponse:
        """Store.BatchCreate."""
        return await self._calls.answer(context, self._dispatch.batch_create, request)

    async def Get(self, request: store_pb2.GetRequest, context: Context) -> store_pb2.GetResponse:
        """Store.Get."""
        return await self._calls.answer(context, self._dispatch.get, request, duration_ms(request.wait))

    async def BatchGet(self, request: store_pb2.BatchGetRequest, context: Context) -> store_pb2.BatchGetResponse:
        """Store.BatchGet."""
        return await self._calls.answer(context, self._store.batch_get, request)

    async def Update(self, request: store_pb2.UpdateRequest, context: Context) -> store_pb2.UpdateResponse:
        """Store.Update."""
        return await self._calls.answer(context, self._dispatch.update, request)

    async def Delete(self, request: store_pb2.DeleteRequest, context: Context) -> store_pb2.DeleteResponse:
        """Store.Delete."""
        return await self._calls.answer(context, self._store.delete, request)

    async def Exists(self, request: store_pb2.ExistsRequest, context: Context) -> store_pb2.ExistsResponse:
        """Store.Exists."""
        return await self._calls.answer(context, self._store.exists, request)

    async def ListIds(self, request: store_pb2.ListIdsRequest, context: Context) -> store_pb2.ListIdsResponse:
        """Store.ListIds."""
        return await self._calls.answer(context, self._store.list_ids, request)

    async def ListChildren(
        self, request: store_pb2.ListChildrenRequest, context: Context
    ) -> store_pb2.ListChildrenResponse:
        """Store.ListChildren."""
        return await self._calls.answer(context, self._store.list_children, request)

    async def Claim(self, request: store_pb2.ClaimRequest, context: Context) -> store_pb2.ClaimResponse:
        """Store.Claim."""
        return await self._calls.answer(context, self._dispatch.claim, request, duration_ms(request.wait))

    # gRPC takes a coroutine that writes as well as an iterator, but the generated type knows only the iterator. With
    # writes of its own the handler sees each one fail or be cancelled, and can give back what it did not deliver.
    async def ClaimStream(  # type: ignore[override]
        self, request: store_pb2.ClaimStreamRequest, context: Context
    ) -> None:
        """Store.ClaimStream."""
        run = functools.partial(self._dispatch.claim_stream, request, context.write)
        await self._calls.stream(context, run, "claim_stream")

    async def Heartbeat(self, request: store_pb2.HeartbeatRequest, context: Context) -> store_pb2.HeartbeatResponse:
        """Store.Heartbeat."""
        return await self._calls.answer(context, self._dispatch.heartbeat, request)

    async def Complete(self, request: store_pb2.CompleteRequest, context: Context) -> store_pb2.CompleteResponse:
        """Store.Complete."""
        return await self._calls.answer(context, self._dispatch.complete, request)

    async def Fail(self, request: store_pb2.FailRequest, context: Context) -> store_pb2.FailResponse:
        """Store.Fail."""
        return await self._calls.answer(context, self._dispatch.fail, request)

    async def Release(self, request: store_pb2.ReleaseRequest, context: Context) -> store_pb2.ReleaseResponse:
        """Store.Release."""
        return await self._calls.answer(context, self._dispatch.release, request)

    async def BatchSettle(
        self, request: store_pb2.BatchSettleRequest, context: Context
    ) -> store_pb2.BatchSettleResponse:
        """Store.BatchSettle."""
        return await self._calls.answer(context, self._dispatch.batch_settle, request)

    async def Cancel(self, request: store_pb2.CancelRequest, context: Context) -> store_pb2.CancelResponse:
        """Store.Cancel."""
        return await self._calls.answer(context, self._dispatch.cancel, request)

    async def ReclaimStale(
        self, request: store_pb2.ReclaimStaleRequest, context: Context
    ) -> store_pb2.ReclaimStaleResponse:
        """Store.ReclaimStale."""
        return await self._calls.answer(context, self._store.reclaim_stale, request)

    Report = unserved("Report")
    Watch = unserved("Watch")
