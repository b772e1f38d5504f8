"""Streams and calls that end by a cancel or a deadline leave nothing behind in the server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import grpc
import pytest
import structlog
from jobwire.v1 import admin_pb2, admin_pb2_grpc, store_pb2
from jobwire_server import app
from jobwire_server.dispatch.dispatch import Dispatch
from jobwire_server.rpc.calls import Calls
from jobwire_server.store.redis import RedisStore

from tests.engines import durable_engine
from tests.requests import PENDING, create
from tests.scenarios.scale import scaled
from tests.scenarios.servers import Jobs, jobs
from tests.server.probe import Probe, Stub, connected, next_jobs, next_message, stream_request
from tests.wait import wait_until

__all__ = ["jobs"]


class Insides:
    """The parts of the servers that a test starts."""

    def __init__(self) -> None:
        self.calls: list[Calls] = []
        self.dispatch: list[Dispatch] = []

    def are_idle(self) -> bool:
        """No call, no stream, no listener, no lease counted against one, no work in the background."""
        return all(calls._brief.free.is_set() and calls._lasting.free.is_set() for calls in self.calls) and not any(
            part
            for dispatch in self.dispatch
            for part in (
                *(dispatch._hub._listeners, dispatch._hub._views, dispatch._ledger._accounts),
                *(dispatch._ledger._checks, dispatch._sessions._latest, dispatch._background._tasks),
            )
        )


@pytest.fixture
def insides(monkeypatch: pytest.MonkeyPatch) -> Insides:
    """Of the test's servers."""
    found = Insides()

    class SeenCalls(Calls):
        def __init__(self, max_calls: int, max_streams: int) -> None:
            super().__init__(max_calls, max_streams)
            found.calls.append(self)

    class SeenDispatch(Dispatch):
        def __init__(self, store: Probe) -> None:
            super().__init__(store)
            found.dispatch.append(self)

    monkeypatch.setattr(app, "Calls", SeenCalls)
    monkeypatch.setattr(app, "Dispatch", SeenDispatch)
    return found


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Nothing is tidied up by the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
async def test_e05_streams_cancelled_while_they_wait_leave_nothing(jobs: Jobs, insides: Insides) -> None:
    """A stream's tidying-up was left to the garbage collector, or its handler hung in a write after the cancel (grpc
    #42295, #36193, #22874).
    """
    async with jobs.server() as server, connected(server.address) as stub:
        for _ in range(scaled(4)):
            calls = [stub.ClaimStream(stream_request("q", "r", session_id=f"s{n}", epoch=1)) for n in range(250)]
            for call in calls:
                assert (await next_message(call)).HasField("opened")
            assert not insides.are_idle()
            for call in calls:
                call.cancel()
            await wait_until(insides.are_idle)
        # The engine's word that this replica waits does no harm either: who comes next gets the job.
        await stub.Create(create("a", "q"))
        call = stub.ClaimStream(stream_request("q"))
        await next_message(call)
        assert [job.job.id for job in await next_jobs(call)] == ["a"]
        call.cancel()


@pytest.mark.usefixtures("no_gc")
async def test_e05_streams_cancelled_with_a_full_window_give_back_what_was_not_sent(insides: Insides) -> None:
    """The same while a write waits for a client that does not read. That such a write fails is nobody's bug."""
    ids = [f"{number}" for number in range(10)]
    given_back = 0
    async with app.running(Probe()) as server, connected(server.address) as stub:
        with structlog.testing.capture_logs() as logs:
            for _ in range(scaled(10)):
                async with connected(server.address) as mine:
                    for job_id in ids:
                        await stub.Create(create(job_id, "q", payload=bytes(1_900_000)))
                    call = mine.ClaimStream(stream_request("q", max_in_flight=10, lease=60))
                    await next_message(call)

                    async def is_claimed() -> bool:
                        return [await is_pending(stub, job_id) for job_id in ids][:2] == [False, False]

                    await wait_until(is_claimed)
                    call.cancel()
                await wait_until(insides.are_idle)
                # A message holds two of these, and the transport a message or two.
                records = [(await stub.Get(store_pb2.GetRequest(id=job_id))).job for job_id in ids]
                assert records[-1].status == PENDING
                given_back += sum(job.status == PENDING and job.attempt == 1 for job in records)
                for job_id in ids:
                    await stub.Delete(store_pb2.DeleteRequest(id=job_id))
        assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
    assert given_back > 0


@pytest.mark.usefixtures("no_gc")
async def test_e05_streams_cancelled_between_claim_and_write_give_back_at_once(insides: Insides) -> None:
    """The same when the engine's answer to the claim is still on its way."""
    store = Probe()
    count = scaled(200)
    async with app.running(store) as server, connected(server.address) as stub:
        for _ in range(2):
            store.gate.clear()
            claims = store.claims
            for number in range(count):
                await store.create(create(f"{number}", "q"))
            calls = [stub.ClaimStream(stream_request("q", lease=60)) for _ in range(count)]
            for call in calls:
                await next_message(call)
            await wait_until(lambda before=claims: store.claims > before)  # type: ignore[misc]
            for call in calls:
                call.cancel()
            await stub.Exists(store_pb2.ExistsRequest(id="0"))  # the cancels are there when this is answered
            store.gate.set()
            await wait_until(insides.are_idle)
            for number in range(count):
                job = (await stub.Get(store_pb2.GetRequest(id=f"{number}"))).job
                assert (job.status, job.losses, job.failures) == (PENDING, 0, 0)
                await stub.Delete(store_pb2.DeleteRequest(id=f"{number}"))


async def is_pending(stub: Stub, job_id: str) -> bool:
    return (await stub.Get(store_pb2.GetRequest(id=job_id))).job.status == PENDING


async def test_e19_calls_end_at_their_deadline_though_the_engine_stands_still(insides: Insides) -> None:
    """Handlers piled up behind a slow engine, long after their callers had gone (grpc.io #1136, grpc #25719)."""
    count = scaled(2_000)
    ids = [f"job-{number}" for number in range(count)]
    with durable_engine() as engine:
        store = await RedisStore.connect(engine.url)
        async with app.running(store) as server, connected(server.address) as stub:
            await stub.Create(create("warm", "other"))
            engine.pause()
            try:
                ends = await asyncio.gather(*(code(stub.Create(create(job_id, "q"), timeout=0.2)) for job_id in ids))
                # Its handlers are gone while the engine still stands: nothing else waits for it.
                await wait_until(lambda: all(calls._brief.free.is_set() for calls in insides.calls))
            finally:
                engine.resume()
            # CANCELLED is gRPC's own, where the server's timer for the caller's deadline was the quicker one.
            assert set(ends) <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
            await wait_until(insides.are_idle)
            found = sum([(await stub.Exists(store_pb2.ExistsRequest(id=job_id))).exists for job_id in ids])
            async with grpc.aio.insecure_channel(server.address) as channel:
                admin: admin_pb2_grpc.AdminAsyncStub = admin_pb2_grpc.AdminStub(channel)
                queue = store_pb2.QueueRef(queue="q")
                stats = (await admin.GetQueue(admin_pb2.GetQueueRequest(ref=queue))).queue.stats
            assert stats.ready == found  # each is fully in, or out
        await store.close()


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 0.001, None, 200 * 366 * 86_400.0])
async def test_e19_any_deadline_is_understood(jobs: Jobs, insides: Insides, timeout: float | None) -> None:
    """The same with deadlines that are over, too short, absent or centuries away: an answer or DEADLINE_EXCEEDED.

    (One beyond the year 2262 has passed already, says gRPC's own client: its clock counts nanoseconds in 64 bits.)
    """
    async with jobs.server() as server, connected(server.address) as stub:
        ends = [await code(stub.Create(create(f"{n}", "q"), timeout=timeout)) for n in range(50)]
        if timeout is None or timeout > 1:
            assert set(ends) == {grpc.StatusCode.OK}
        else:
            assert set(ends) <= {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
        await wait_until(insides.are_idle)
        assert (await stub.Create(create("after", "q"))).created


async def code(call: object) -> grpc.StatusCode:
    """How a call ended."""
    try:
        await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
