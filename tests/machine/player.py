"""Plays the same calls on any store and keeps what it answered."""

from __future__ import annotations

from typing import Any

from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

from tests.clock import Clock
from tests.requests import at, create, seconds, update


class Player:
    """Plays steps on one store and keeps what it answered."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.lost = False
        """Whether a record was lost since the last repair: what depends on its traces is left out then."""
        self._leases = [store_pb2.LeaseRef(id="a", token="made-up")]

    async def play(self, step: tuple[str, Any]) -> list[object]:
        """What the store answers, refusals included."""
        verb, args = step
        try:
            return [answer async for answer in getattr(self, f"_{verb}")(args)]
        except StoreError as error:
            return [error.reason_name, error.message, error.metadata, error.fields]

    def _lease(self, index: int) -> store_pb2.LeaseRef:
        return self._leases[-1 - index % len(self._leases)]

    async def _etag(self, job_id: str, which: str) -> str:
        if which != "current":
            return which
        try:
            return (await self._store.get(store_pb2.GetRequest(id=job_id))).job.etag
        except StoreError:
            return "none"

    def _remember(self, jobs: Any) -> None:
        self._leases += [
            store_pb2.LeaseRef(namespace=job.job.namespace, id=job.job.id, token=job.lease_token) for job in jobs
        ]

    def _request(self, drawn: dict[str, Any]) -> store_pb2.CreateRequest:
        """As drawn, less what would only be refused as malformed."""
        fields = dict(drawn)
        held = fields.pop("held", None)
        if fields.pop("parent", False) and "/" in fields.get("job_id", ""):
            fields["parent_id"] = fields["job_id"].rpartition("/")[0]
            if held is not None:
                fields["parent_token"] = self._lease(held).token
        elif "key" in fields:
            fields.pop("job_id", None)
        if "queue" in fields:
            fields.pop("status", None)
        else:
            for field in ("priority", "delay", "queue_timeout", "lease", "max_attempts"):
                fields.pop(field, None)
        return create(**fields)

    async def _create(self, fields: dict[str, Any]) -> Any:
        yield await self._store.create(self._request(fields))

    _share = _create

    async def _batch_create(self, items: list[dict[str, Any]]) -> Any:
        request = store_pb2.BatchCreateRequest(requests=[self._request(fields) for fields in items])
        yield await self._store.batch_create(request)

    async def _hand_off(self, args: Any) -> Any:
        fields, queue, max_jobs, receipt_ms = args
        wish = store_pb2.ClaimRequest(queues=[store_pb2.QueueRef(queue=queue)])
        outcome, claimed = await self._store.hand_off(self._request(fields), wish, max_jobs, receipt_ms=receipt_ms)
        self._remember(claimed.jobs)
        if isinstance(outcome, StoreError):
            yield outcome.reason_name
        else:
            yield outcome
        yield claimed.jobs
        if not self.lost:
            yield claimed.more

    async def _update(self, args: Any) -> Any:
        job_id, fields, etag = args
        yield await self._store.update(update(job_id, etag=await self._etag(job_id, etag), **fields))

    async def _delete(self, args: Any) -> Any:
        job_id, etag = args
        yield await self._store.delete(store_pb2.DeleteRequest(id=job_id, etag=await self._etag(job_id, etag)))

    async def _cancel(self, args: Any) -> Any:
        job_id, grace_ms = args
        grace = seconds(grace_ms / 1_000)
        yield await self._store.cancel(store_pb2.CancelRequest(id=job_id, reason="why", grace=grace))

    async def _claim(self, args: Any) -> Any:
        queues, max_jobs = args
        refs = [store_pb2.QueueRef(queue=queue) for queue in queues]
        answer = await self._store.claim(
            store_pb2.ClaimRequest(queues=refs, max_jobs=max_jobs, worker_id="w", lease_duration=seconds(2))
        )
        self._remember(answer.jobs)
        yield answer

    async def _take(self, args: Any) -> Any:
        queue, max_jobs, max_bytes, receipt_ms = args
        request = store_pb2.ClaimRequest(queues=[store_pb2.QueueRef(queue=queue)])
        claimed = await self._store.claim_from(0, request, max_jobs, max_bytes, receipt_ms=receipt_ms, waiting=True)
        self._remember(claimed.jobs)
        yield claimed.jobs
        if not self.lost:
            yield claimed.more
            yield await self._store.look(0, [("default", "q"), ("default", "r")])

    async def _settle(self, settlements: Any) -> Any:
        request = store_pb2.BatchSettleRequest()
        for verb, index, delay, error, result in settlements:
            lease, item = self._lease(index), request.settlements.add()
            wait = None if delay is None else seconds(delay)
            if verb == "complete":
                item.complete.CopyFrom(store_pb2.CompleteRequest(lease=lease, result=result))
            elif verb == "fail":
                item.fail.CopyFrom(store_pb2.FailRequest(lease=lease, error=error, delay=wait))
            else:
                item.release.CopyFrom(store_pb2.ReleaseRequest(lease=lease, delay=wait))
        yield await self._store.batch_settle(request)

    async def _heartbeat(self, beats: Any) -> Any:
        leases = [store_pb2.LeaseHeartbeat(lease=self._lease(index), progress=progress) for index, progress in beats]
        yield await self._store.heartbeat(store_pb2.HeartbeatRequest(leases=leases))

    async def _reclaim(self, args: Any) -> Any:
        age, page_size = args
        token, first = "", True
        # How many pages that takes, where entries are dropped on the way, is each backend's own.
        taken: list[store_pb2.LeaseRef] = []
        while token or first:
            request = store_pb2.ReclaimStaleRequest(page_size=page_size, page_token=token)
            if age is not None:
                request.heartbeat_before.CopyFrom(at(self._clock.now_ms - age + 1))
            answer = await self._store.reclaim_stale(request)
            taken += answer.reclaimed
            token, first = answer.next_page_token, False
        yield taken

    async def _sweep(self, _: None) -> Any:
        for partition in range(self._store.partitions):
            swept = await self._store.sweep(partition)
            yield swept if not self.lost else swept._replace(next_ms=0)

    async def _read(self, _: None) -> Any:
        """Everything that can be seen."""
        ids = (await self._store.list_ids(store_pb2.ListIdsRequest(limit=1_000))).ids
        yield list(ids)
        known = [*ids, "a", "b", "c", "a/x"]
        yield await self._store.batch_get(store_pb2.BatchGetRequest(ids=known, view=job_pb2.JOB_VIEW_FULL))
        for parent in known:
            yield await self._store.list_children(store_pb2.ListChildrenRequest(parent_id=parent))
            yield await self._store.exists(store_pb2.ExistsRequest(id=parent))
        yield await self._store.held(self._leases)
        if not self.lost:
            yield await self._store.list_queues(admin_pb2.ListQueuesRequest())
