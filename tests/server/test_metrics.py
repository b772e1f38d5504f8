"""What a server counts, over a real socket."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from jobwire.v1 import store_pb2
from jobwire_server.app import running
from jobwire_server.dispatch import pace
from jobwire_server.store.redis import RedisStore

from tests.engines import Engine
from tests.requests import claim, complete, create, fail, heartbeat, release
from tests.server.probe import Probe, Stub, connected, next_message, stream_request
from tests.telemetry import Recorded
from tests.wait import wait_until


async def test_what_goes_wrong_with_leases_is_counted(store: Probe, stub: Stub, recorded: Recorded) -> None:
    await stub.Create(create("lost", "lost"))
    [job] = (await stub.Claim(claim("lost", lease=0.5))).jobs
    await wait_until(lambda: recorded.value("jobwire.reclaims") == 1)
    [held] = (await stub.Claim(claim("lost"))).jobs
    await stub.Heartbeat(heartbeat(job, held))
    for refused in (stub.Complete(complete(job)), stub.Release(release(job)), stub.Fail(fail(job))):
        with pytest.raises(grpc.aio.AioRpcError):
            await refused
    settlements = [store_pb2.Settlement(complete=complete(job)), store_pb2.Settlement(complete=complete(held))]
    await stub.BatchSettle(store_pb2.BatchSettleRequest(settlements=settlements))
    assert recorded.value("jobwire.leases.lost") == 1
    assert recorded.value("jobwire.fenced_writes") == 4
    assert recorded.value("jobwire.reclaims") == 1

    for _ in range(2):
        await stub.Create(create(queue="keyed", key="k"))
    again = store_pb2.BatchCreateRequest(requests=[create(queue="keyed", key="k"), create(queue="keyed", key="l")])
    await stub.BatchCreate(again)
    assert recorded.value("jobwire.dedup.hits") == 2

    # A claim that is cancelled while it is under way gives back what it took.
    store.gate.clear()
    claims = store.claims
    call = stub.Claim(claim("keyed", max_jobs=2))
    await wait_until(lambda: store.claims > claims)
    call.cancel()
    await wait_until(lambda: recorded.value("jobwire.operations", verb="claim", outcome="cancelled") == 1)
    store.gate.set()
    await wait_until(lambda: recorded.value("jobwire.undelivered") == 2)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are read as often as it takes."""
    monkeypatch.setattr(pace, "GAUGES_SECONDS", 0.01)


@pytest.mark.usefixtures("often")
async def test_what_is_there_just_now_is_told_while_somebody_asks(stub: Stub, recorded: Recorded) -> None:
    queue = "gauged"

    def jobs(state: str) -> float:
        return recorded.value("jobwire.queue.jobs", namespace="default", queue=queue, state=state)

    call = stub.ClaimStream(stream_request(queue, max_in_flight=2))
    assert (await next_message(call)).HasField("opened")
    for number in range(5):
        await stub.Create(create(f"j{number}", queue))
    await stub.Create(create("later", queue, delay=3_600))
    await wait_until(lambda: jobs("ready") == 3, seconds=30)
    assert (jobs("running"), jobs("scheduled")) == (2, 1)
    assert recorded.value("jobwire.streams") == 1
    assert recorded.value("jobwire.leases.in_flight") == 2
    age = recorded.value("jobwire.queue.oldest_age", queue=queue)
    await wait_until(lambda: recorded.value("jobwire.queue.oldest_age", queue=queue) > age, seconds=30)
    call.cancel()
    await wait_until(lambda: recorded.value("jobwire.streams") == 0)
    assert recorded.value("jobwire.leases.in_flight") == 0


@pytest.mark.usefixtures("often")
async def test_nobody_reads_the_queues_while_nobody_collects(
    store: Probe, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    async def counted(partition: int) -> list[tuple[str, str]]:
        reads.append(partition)
        return [("default", "q")]

    monkeypatch.setattr(store, "_list_queues", counted)
    async with running(store):
        await asyncio.sleep(0.2)  # twenty times as long as between two readings
        assert reads == []
        assert recorded.value("jobwire.queue.jobs", queue="q") == 0
        await wait_until(lambda: reads == [0])
        await asyncio.sleep(0.2)
        assert reads == [0]


async def test_claims_delays_and_round_trips_have_durations(engine: Engine, recorded: Recorded) -> None:
    await engine.flush()
    store = await RedisStore.connect(engine.url)
    async with running(store) as server, connected(server.address) as stub:
        await stub.Create(create("a", "q"))
        await stub.Create(create("b", "q", delay=0.05))
        await wait_until(lambda: recorded.value("jobwire.delay.lateness") == 1)
        for _ in range(2):
            await stub.Complete(complete((await stub.Claim(claim("q"))).jobs[0]))
        await stub.Claim(claim("q"))
        assert recorded.value("jobwire.claim.latency") == 2
        assert recorded.value("jobwire.engine.round_trip") >= 7
    await store.close()


async def test_a_metric_costs_by_calls_not_by_jobs(stub: Stub, recorded: Recorded) -> None:
    requests = [create(f"j{number}", "q") for number in range(500)]
    await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=requests))
    assert len((await stub.Claim(claim("q", max_jobs=500))).jobs) == 500
    assert recorded.value("jobwire.operations") == 2
    assert recorded.value("jobwire.operation.duration") == 2
    assert 1 <= recorded.value("jobwire.claim.latency") <= 4
