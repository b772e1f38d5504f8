"""Who gets woken, how often the engine is asked, and what makes up for a lost notice."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from jobwire.v1 import store_pb2

from tests.requests import complete, create, fail, ms, release
from tests.server.probe import Probe, Reading, Stub, next_jobs, serving, streaming
from tests.wait import wait_until


async def idle_streams(stack: AsyncExitStack, stub: Stub, count: int) -> list[Reading]:
    """That many streams on "q", one job each."""
    return [Reading(await stack.enter_async_context(streaming(stub, "q"))) for _ in range(count)]


def count(streams: list[Reading]) -> int:
    """How many jobs they got together."""
    return sum(len(stream.jobs) for stream in streams)


async def settled(store: Probe) -> None:
    """Until the streams have made their first claims."""
    before = -1
    while before != store.claims:
        before = store.claims
        await asyncio.sleep(0.05)


async def test_one_create_reaches_one_stream_and_costs_one_claim(store: Probe, stub: Stub) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 20)
        await settled(store)
        assert store.claims <= 2, "streams to one queue share what is known about it"
        for _ in range(10):
            before, received = store.claims, count(streams)
            await stub.Create(create(queue="q"))
            await wait_until(lambda: count(streams) > received)  # noqa: B023 - waited for here
            await settled(store)
            assert store.claims == before + 1
        assert max(len(stream.jobs) for stream in streams) == 1


async def test_a_batch_reaches_as_many_streams_as_it_has_jobs(store: Probe, stub: Stub) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 10)
        await settled(store)
        before = store.claims
        await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=[create(queue="q") for _ in range(6)]))
        await wait_until(lambda: count(streams) == 6)
        await settled(store)
        assert store.claims == before + 6
        assert sorted(len(stream.jobs) for stream in streams) == [0] * 4 + [1] * 6


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_job_created_through_one_replica_wakes_a_stream_of_another(partitions: int) -> None:
    store = Probe(partitions)
    async with serving(store) as stub, serving(store.beside()) as other, streaming(other, "q") as call:
        for _ in range(5):
            created = time.monotonic()
            await stub.Create(create(queue="q"))
            [job] = await next_jobs(call)
            assert time.monotonic() - created < 0.4, "by a notice, not by a look"
            await other.Complete(complete(job))


async def test_streams_to_different_queues_are_woken_for_their_own(store: Probe, stub: Stub) -> None:
    async with streaming(stub, "a") as one, streaming(stub, "b", "c") as two, streaming(stub, "c") as three:
        await settled(store)
        await stub.Create(create("in-b", "b"))
        assert [job.job.id for job in await next_jobs(two, 0.5)] == ["in-b"]
        await stub.Create(create("in-c", "c"))
        assert [job.job.id for job in await next_jobs(three, 0.5)] == ["in-c"]
        await stub.Create(create("in-a", "a"))
        assert [job.job.id for job in await next_jobs(one, 0.5)] == ["in-a"]


async def test_a_notice_to_a_replica_without_room_is_passed_on(store: Probe) -> None:
    async with serving(store) as stub, serving(store.beside()) as other, streaming(stub, "q", "x") as busy:
        await settled(store)
        # Longer waiting than the other replica, so first to be told, but it has taken something else meanwhile.
        await stub.Create(create("in-x", "x"))
        await next_jobs(busy)
        async with streaming(other, "q") as idle:
            created = time.monotonic()
            await stub.Create(create("in-q", "q"))
            assert [job.job.id for job in await next_jobs(idle)] == ["in-q"]
            assert time.monotonic() - created < 0.4


async def test_replicas_with_one_worker_each_keep_none_waiting(store: Probe) -> None:
    async with (
        serving(store) as stub,
        serving(store.beside()) as other,
        streaming(stub, "q") as one,
        streaming(other, "q") as two,
    ):
        readings = [Reading(one), Reading(two)]
        for number in range(20):
            # Of every two jobs the second meets one worker that is busy and one that is idle.
            created = time.monotonic()
            await stub.Create(create(queue="q"))
            await wait_until(lambda: count(readings) > number)  # noqa: B023 - waited for here
            assert time.monotonic() - created < 0.4
            if number % 2:
                for reading in readings:
                    await stub.Complete(complete(reading.jobs[-1]))


async def test_a_lost_notice_costs_at_most_a_look(store: Probe) -> None:
    store.deaf = True
    async with serving(store) as stub, streaming(stub, "q") as call:
        for _ in range(3):
            created = time.monotonic()
            await stub.Create(create(queue="q"))
            [job] = await next_jobs(call)
            assert time.monotonic() - created < 1.5
            await stub.Complete(complete(job))
            await settled(store)


async def test_a_stream_that_was_woken_and_went_passes_the_job_on(store: Probe, stub: Stub) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 5)
        await settled(store)
        for stream in streams[:-1]:
            creating = asyncio.ensure_future(stub.Create(create(queue="q")))
            await stream.stop()
            await creating
        # However the cancels met the wake-ups: no job waits while a stream is idle.
        last = streams[-1]
        await wait_until(lambda: len(last.jobs) == 1, 0.5)


async def test_an_engine_that_is_away_ends_no_stream(store: Probe, stub: Stub) -> None:
    async with streaming(stub, "q") as call:
        await settled(store)
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)
        store.go_down()
        await asyncio.sleep(1.2)
        store.failure = None
        await stub.Create(create("b", "q"))
        await stub.Complete(complete(job))
        assert [job.job.id for job in await next_jobs(call, 1.5)] == ["b"]


@pytest.mark.parametrize("delay", [0.12, 0.7])
async def test_a_delayed_job_comes_on_time_and_never_early(stub: Stub, delay: float) -> None:
    async with streaming(stub, "q") as call:
        since = ms((await stub.Create(create("a", "q", delay=delay))).job.create_time)
        for settle in (
            lambda job: stub.Fail(fail(job, delay=delay)),
            lambda job: stub.Release(release(job, delay=delay)),
            lambda job: stub.Complete(complete(job)),
        ):
            [job] = await next_jobs(call)
            late = ms(job.job.start_time) - since - delay * 1_000
            assert 0 <= late < 150
            await settle(job)
            since = ms((await stub.Get(store_pb2.GetRequest(id="a"))).job.attempts[-1].finish_time)


async def test_a_lease_that_runs_out_is_given_on_without_anybody_asking(store: Probe, stub: Stub) -> None:
    async with streaming(stub, "q", lease=0.5) as frozen, streaming(stub, "q") as call:
        await settled(store)
        await stub.Create(create("a", "q", lease=0.5))
        first, second = Reading(frozen), Reading(call)
        await wait_until(lambda: len(first.jobs + second.jobs) == 2, 2.0)
        jobs = sorted(first.jobs + second.jobs, key=lambda job: job.job.attempt)
        held_for = ms(jobs[1].job.start_time) - ms(jobs[0].job.start_time)
        assert 500 <= held_for < 700
        await first.stop()
        await second.stop()


async def test_idle_streams_cost_almost_nothing(store: Probe, stub: Stub) -> None:
    async with AsyncExitStack() as stack:
        await idle_streams(stack, stub, 200)
        await settled(store)
        before, claims = time.process_time(), store.claims
        await asyncio.sleep(3.0)
        # Server and clients are one process here. The whole server may take 0.6 s in 30 s.
        assert time.process_time() - before < 0.12
        assert store.claims == claims
