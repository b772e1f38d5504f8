"""ClaimStream: what a client is told, and how many jobs it gets."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server import __version__
from jobwire_server.dispatch import credit

from tests.errors import store_error
from tests.requests import MANY_LABELS, complete, create, fail, heartbeat, lease_of, release, seconds
from tests.server.probe import Probe, Reading, Stub, next_jobs, next_message, serving, stream_request, streaming
from tests.wait import wait_until


async def test_opened_comes_first_with_the_limits_in_force(stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    call = stub.ClaimStream(store_pb2.ClaimStreamRequest(queues=[store_pb2.QueueRef(queue="q")]))
    opened = (await next_message(call)).opened
    assert opened.stream_id
    assert opened.max_in_flight == 1
    assert opened.lease_duration == seconds(30)
    assert opened.keepalive_interval == seconds(20)
    assert opened.server_version == __version__
    assert [job.job.id for job in await next_jobs(call)] == ["a"]
    call.cancel()


async def test_jobs_that_are_ready_come_together_up_to_the_credit(stub: Stub) -> None:
    for number in range(5):
        await stub.Create(create(f"j{number}", "q", payload=b"p"))
    async with streaming(stub, "q", max_in_flight=3) as call:
        jobs = await next_jobs(call)
        assert [job.job.id for job in jobs] == ["j0", "j1", "j2"]
        assert jobs[0].job.payload == b"p"
        await stub.BatchSettle(
            store_pb2.BatchSettleRequest(
                settlements=[
                    store_pb2.Settlement(complete=complete(jobs[0])),
                    store_pb2.Settlement(fail=fail(jobs[1], delay=60)),
                ]
            )
        )
        assert [job.job.id for job in await next_jobs(call)] == ["j3", "j4"]


@pytest.mark.usefixtures("no_looks", "no_checks")
@pytest.mark.parametrize("verb", ["Complete", "Fail", "Release"])
async def test_a_settlement_gives_credit_back_at_once(stub: Stub, verb: str) -> None:
    settlements: dict[str, Any] = {"Complete": complete, "Fail": fail, "Release": release}
    async with streaming(stub, "q") as call:
        await stub.Create(create("a", "q", priority=1))
        await stub.Create(create("b", "q"))
        [job] = await next_jobs(call)
        await getattr(stub, verb)(settlements[verb](job))
        [following] = await next_jobs(call)
        assert following.job.id == ("b" if verb == "Complete" else "a")


@pytest.mark.usefixtures("no_looks", "no_checks")
async def test_a_settlement_through_another_replica_gives_credit_back(store: Probe) -> None:
    async with serving(store) as stub, serving(store.beside()) as other, streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        await stub.Create(create("b", "q"))
        [job] = await next_jobs(call)
        await other.Complete(complete(job))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


async def test_without_notices_the_leases_are_checked_after_a_second_without_credit(store: Probe) -> None:
    store.deaf = True
    async with serving(store) as stub, serving(store.beside()) as other, streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        await stub.Create(create("b", "q"))
        [job] = await next_jobs(call)
        # Checks go on when one of them failed.
        store.go_down()
        await wait_until(lambda: store.failures > 5)
        store.failure = None
        await other.Complete(complete(job))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


async def test_a_frozen_client_is_not_fed_until_it_speaks(store: Probe) -> None:
    async with serving(store) as stub, streaming(stub, "q", lease=0.5) as call:
        reading = Reading(call)
        await stub.Create(create("a", "q", lease=0.5))
        await wait_until(lambda: len(reading.jobs) == 1)
        [job] = reading.jobs

        async def is_lost() -> bool:
            return (await stub.Get(store_pb2.GetRequest(id="a"))).job.losses == 1

        await wait_until(is_lost)
        claims, checks = store.claims, store.checks
        await wait_until(lambda: store.checks > checks)  # which finds the lease lost
        await stub.Exists(store_pb2.ExistsRequest(id="a"))
        assert store.claims == claims
        assert len(reading.jobs) == 1
        [result] = (await stub.Heartbeat(heartbeat(job))).results
        assert result.state == store_pb2.LEASE_STATE_LOST
        await wait_until(lambda: len(reading.jobs) == 2)
        assert reading.jobs[1].job.attempt == 2
        await reading.stop()


@pytest.mark.usefixtures("no_looks", "no_checks")
async def test_a_settlement_refused_as_lost_gives_credit_back(store: Probe) -> None:
    async with serving(store) as stub, streaming(stub, "q", lease=0.5) as call:
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)

        async def is_lost() -> bool:
            return (await stub.Get(store_pb2.GetRequest(id="a"))).job.losses == 1

        await wait_until(is_lost)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Complete(complete(job))
        assert store_error(caught.value).reason == job_pb2.ERROR_REASON_LEASE_LOST
        [again] = await next_jobs(call)
        assert again.job.attempt == 2


@pytest.mark.usefixtures("no_looks", "no_checks")
async def test_what_a_client_still_holds_counts_against_its_credit(stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    await stub.Create(create("b", "q"))
    async with streaming(stub, "q") as call:
        [job] = await next_jobs(call)
    gone = store_pb2.LeaseRef(id="x", token="t")
    call = stub.ClaimStream(stream_request("q", max_in_flight=2, held=[lease_of(job), gone], epoch=1))
    assert list((await next_message(call)).opened.held_tokens) == [job.lease_token]
    assert [following.job.id for following in await next_jobs(call)] == ["b"]
    await stub.Create(create("c", "q"))
    await stub.Complete(complete(job))
    assert [following.job.id for following in await next_jobs(call)] == ["c"]
    call.cancel()


async def test_queues_are_served_in_the_order_listed(stub: Stub) -> None:
    for queue in ("batch", "interactive", "batch", "system"):
        await stub.Create(create(queue=queue))
    async with streaming(stub, "interactive", "system", "batch", max_in_flight=10) as call:
        jobs = await next_jobs(call)
    assert [job.job.queue for job in jobs] == ["interactive", "system", "batch", "batch"]


async def test_no_partition_starves() -> None:
    store = Probe(partitions=4)
    async with serving(store) as stub:
        for number in range(40):
            await stub.Create(create(f"{number}", "q"))
        seen: list[int] = []
        async with streaming(stub, "q") as call:
            for _ in range(8):
                [job] = await next_jobs(call)
                seen.append(store.partition_of("default", job.job.id))
                await stub.Complete(complete(job))
        assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_each_message_fits_the_default_limit(stub: Stub) -> None:
    for number in range(5):
        await stub.Create(create(f"{number}", "q", payload=bytes(1_900_000)))
    async with streaming(stub, "q", max_in_flight=10) as call:
        sizes: list[int] = []
        while sum(sizes) < 5:
            sizes.append(len(await next_jobs(call)))
    assert sizes == [2, 2, 1]


async def test_many_large_labels_do_not_break_the_limit(stub: Stub) -> None:
    requests = [create(queue="q", labels=MANY_LABELS) for _ in range(250)]
    for _ in range(3):
        await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=requests))
    async with streaming(stub, "q", max_in_flight=1_000) as call:
        received = 0
        while received < 750:
            received += len(await next_jobs(call))


async def test_keepalive_after_silence_only(stub: Stub) -> None:
    async with streaming(stub, "q", keepalive=1.0) as call:
        loop = asyncio.get_running_loop()
        opened = loop.time()
        assert (await next_message(call)).HasField("keepalive")
        assert loop.time() - opened > 0.9
        await stub.Create(create("a", "q"))
        await next_jobs(call)
        sent = loop.time()
        # Without credit, too.
        assert (await next_message(call)).HasField("keepalive")
        assert loop.time() - sent > 0.9


async def test_a_client_that_stays_silent_about_a_lost_lease_is_sent_away(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It may have heard of the loss from another server, and would wait here for ever.
    monkeypatch.setattr(credit, "SILENT_SECONDS", 0.5)
    async with streaming(stub, "q", lease=0.5) as call:
        await stub.Create(create("a", "q"))
        await next_jobs(call)
        assert (await next_message(call)).HasField("drain")
        assert await call.code() is grpc.StatusCode.OK


async def test_an_invalid_request_is_refused(stub: Stub) -> None:
    call = stub.ClaimStream(store_pb2.ClaimStreamRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert list(store_error(caught.value).fields) == ["queues"]
