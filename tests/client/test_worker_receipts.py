"""What a worker says on its claim stream and in the first heartbeat of a lease, to a server that is scripted."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import jobwire
import pytest
from google.rpc import error_details_pb2
from jobwire.v1 import store_pb2

from tests.client.scripted import Scripted, abort
from tests.client.working import working
from tests.wait import wait_until

HELD, LOST = store_pb2.LEASE_STATE_HELD, store_pb2.LEASE_STATE_LOST


class Server:
    """Writes what a test puts in, to the newest stream; answers heartbeats unless told to wait."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._out: asyncio.Queue[store_pb2.ClaimStreamResponse | None] = asyncio.Queue()
        self.answering = asyncio.Event()
        self.answering.set()
        self.lost: set[str] = set()
        scripted.script |= {"ClaimStream": self._stream, "Heartbeat": self._heartbeat, "BatchSettle": self._settle}
        scripted.script |= {"Complete": self._complete, "Release": self._release}

    def send(self, name: str) -> None:
        """Sends a job: `name` is its id and token."""
        claimed = jobwire.ClaimedJob(job=jobwire.Job(namespace="default", id=name, attempt=1), lease_token=name)
        claimed.lease_duration.FromSeconds(30)
        self._out.put_nowait(store_pb2.ClaimStreamResponse(jobs=store_pb2.StreamJobs(jobs=[claimed])))

    def supersede(self) -> None:
        """Ends the stream as an older one."""
        self._out.put_nowait(None)

    def receipts(self) -> list[str]:
        """The tokens of all heartbeats."""
        return [beat.lease.token for request in self._scripted.of("Heartbeat") for beat in request.leases]

    async def _stream(self, request: store_pb2.ClaimStreamRequest, context: Any) -> None:
        opened = store_pb2.StreamOpened(keepalive_interval=request.keepalive_interval, max_in_flight=4)
        opened.held_tokens.extend(lease.token for lease in request.held)
        await context.write(store_pb2.ClaimStreamResponse(opened=opened))
        while True:
            try:
                message = await asyncio.wait_for(self._out.get(), 1)
            except TimeoutError:
                message = store_pb2.ClaimStreamResponse(keepalive=store_pb2.StreamKeepalive())
            if message is None:
                info = error_details_pb2.ErrorInfo(reason="STREAM_SUPERSEDED", domain="jobwire.v1")
                await abort(context, grpc.StatusCode.ABORTED, "superseded", info)
            await context.write(message)

    async def _heartbeat(self, request: store_pb2.HeartbeatRequest, context: Any) -> store_pb2.HeartbeatResponse:
        await self.answering.wait()
        states = [LOST if beat.lease.token in self.lost else HELD for beat in request.leases]
        return store_pb2.HeartbeatResponse(results=[store_pb2.HeartbeatResult(state=state) for state in states])

    async def _complete(self, request: store_pb2.CompleteRequest, context: Any) -> store_pb2.CompleteResponse:
        return store_pb2.CompleteResponse()

    async def _release(self, request: store_pb2.ReleaseRequest, context: Any) -> store_pb2.ReleaseResponse:
        return store_pb2.ReleaseResponse()

    async def _settle(self, request: store_pb2.BatchSettleRequest, context: Any) -> store_pb2.BatchSettleResponse:
        result = store_pb2.SettlementResult(complete=store_pb2.CompleteResponse())
        return store_pb2.BatchSettleResponse(results=[result] * len(request.settlements))


class Begun:
    """A handler that notes what begins and waits for leave to end."""

    def __init__(self, worker: jobwire.Worker) -> None:
        self.ids: list[str] = []
        self.go_on = asyncio.Event()
        worker.handler()(self.handle)

    async def handle(self, job: jobwire.JobContext) -> None:
        self.ids.append(job.job.id)
        await self.go_on.wait()


@pytest.fixture
def server(scripted: Scripted) -> Server:
    """The script."""
    return Server(scripted)


async def test_every_stream_of_a_worker_is_one_session(
    scripted: Scripted, server: Server, scripted_client: jobwire.Client
) -> None:
    worker = jobwire.Worker(scripted_client, queues="q", worker_id="w", lease_duration=40)
    begun = Begun(worker)
    async with working(worker):
        server.send("a")
        await wait_until(lambda: begun.ids == ["a"])
        server.supersede()
        await wait_until(lambda: len(scripted.of("ClaimStream")) == 2)
        server.send("b")
        await wait_until(lambda: begun.ids == ["a", "b"])
        begun.go_on.set()
    first, second = scripted.of("ClaimStream")
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.session_id == second.session_id != ""
    assert ([*first.held], [lease.token for lease in second.held]) == ([], ["a"])
    assert (first.receipt_timeout.seconds, first.keepalive_interval.seconds) == (10, 2)


async def test_a_receipt_waits_no_longer_than_the_lease(
    scripted: Scripted, server: Server, scripted_client: jobwire.Client
) -> None:
    async with working(jobwire.Worker(scripted_client, queues="q", lease_duration=4)):
        await wait_until(lambda: bool(scripted.of("ClaimStream")))
    assert scripted.of("ClaimStream")[0].receipt_timeout.seconds == 4


async def test_the_receipt_is_sent_at_once_and_the_handler_does_not_wait_for_its_answer(
    server: Server, scripted_client: jobwire.Client
) -> None:
    worker = jobwire.Worker(scripted_client, queues="q", concurrency=3)
    begun = Begun(worker)
    server.answering.clear()
    async with working(worker):
        server.send("a")
        await wait_until(lambda: begun.ids == ["a"])
        await wait_until(lambda: server.receipts() == ["a"])
        # While it is in flight, the next are gathered; then they go out together, and not what has its receipt.
        for name in "bc":
            server.send(name)
        await wait_until(lambda: begun.ids == ["a", "b", "c"])
        server.answering.set()
        await wait_until(lambda: sorted(server.receipts()) == ["a", "b", "c"])
        begun.go_on.set()


async def test_a_job_that_is_lost_before_it_begins_does_not_begin(
    server: Server, scripted_client: jobwire.Client
) -> None:
    worker = jobwire.Worker(scripted_client, queues="q", concurrency=1, max_in_flight=3)
    begun = Begun(worker)
    server.lost.add("b")
    async with working(worker):
        for name in "abc":
            server.send(name)
        await wait_until(lambda: sorted(server.receipts()) == ["a", "b", "c"])
        await wait_until(lambda: "b" not in worker._runs)
        begun.go_on.set()
        await wait_until(lambda: begun.ids == ["a", "c"])


async def test_with_a_short_lease_a_job_that_may_be_too_old_waits_for_its_receipt(
    server: Server, scripted_client: jobwire.Client
) -> None:
    """A worker frozen for longer than its lease, but not than keepalives allow, cannot tell: it asks first."""
    worker = jobwire.Worker(scripted_client, queues="q", lease_duration=1)
    begun = Begun(worker)
    begun.go_on.set()
    server.lost.add("old")
    async with working(worker):
        server.send("first")
        await wait_until(lambda: begun.ids == ["first"])
        await asyncio.sleep(0.7)  # silence: anything read now may be that old
        server.send("old")
        await wait_until(lambda: server.receipts().count("old") == 1)
        await wait_until(lambda: not worker._runs)
        server.send("new")
        await wait_until(lambda: "new" in begun.ids)
    assert begun.ids == ["first", "new"]


async def test_a_lease_counts_from_when_its_job_may_have_been_sent(
    server: Server, scripted_client: jobwire.Client
) -> None:
    """A process that is slow to read it would else begin it after the server gave it away."""
    worker = jobwire.Worker(scripted_client, queues="q", concurrency=2, lease_duration=10)
    begun = Begun(worker)
    server.answering.clear()
    async with working(worker):
        server.send("a")
        await wait_until(lambda: begun.ids == ["a"])
        before = time.monotonic()
        server.send("b")
        await wait_until(lambda: begun.ids == ["a", "b"])
        assert worker._runs["b"].lease.extended < before
        server.answering.set()
        begun.go_on.set()
