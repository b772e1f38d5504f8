"""The Admin service: one handler per RPC."""

# ruff: noqa: N802 - handlers bear the contract's names

from __future__ import annotations

from jobwire.v1 import admin_pb2, admin_pb2_grpc

from jobwire_server.store.base import Store

from .calls import Calls, Context, unserved


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """What this release serves of Admin; the rest answers NOT_SERVED."""

    def __init__(self, store: Store, calls: Calls) -> None:
        self._store = store
        self._calls = calls

    async def ListQueues(self, request: admin_pb2.ListQueuesRequest, context: Context) -> admin_pb2.ListQueuesResponse:
        """Admin.ListQueues."""
        return await self._calls.answer(context, self._store.list_queues, request)

    async def GetQueue(self, request: admin_pb2.GetQueueRequest, context: Context) -> admin_pb2.GetQueueResponse:
        """Admin.GetQueue."""
        return await self._calls.answer(context, self._store.get_queue, request)

    SetQueue = unserved("SetQueue")
    GetTenant = unserved("GetTenant")
    SetTenant = unserved("SetTenant")
    ListJobs = unserved("ListJobs")
    RedriveJobs = unserved("RedriveJobs")
    PurgeJobs = unserved("PurgeJobs")
    CreateSchedule = unserved("CreateSchedule")
    ListSchedules = unserved("ListSchedules")
    DeleteSchedule = unserved("DeleteSchedule")
    ListWorkers = unserved("ListWorkers")
    GetServerInfo = unserved("GetServerInfo")
