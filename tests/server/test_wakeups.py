"""Who gets woken, how often the engine is asked, and what makes up for a lost notice."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.dispatch import pace

from tests.requests import complete, create, fail, ms, release
from tests.server.probe import Probe, Reading, Stub, Views, next_jobs, serving, streaming
from tests.wait import wait_until


async def idle_streams(stack: AsyncExitStack, stub: Stub, count: int) -> list[Reading]:
    """That many streams on "q", one job each."""
    return [Reading(await stack.enter_async_context(streaming(stub, "q"))) for _ in range(count)]


def count(streams: list[Reading]) -> int:
    """How many jobs they got together."""
    return sum(len(stream.jobs) for stream in streams)


async def test_one_create_reaches_one_stream_and_costs_one_claim(store: Probe, stub: Stub, views: Views) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 20)
        await views.idle(20)
        assert store.claims <= 2, "streams to one queue share what is known about it"
        for number in range(10):
            before = store.claims
            await stub.Create(create(queue="q"))
            await wait_until(lambda: count(streams) > number)  # noqa: B023 - waited for here
            await views.idle(19 - number)
            assert store.claims == before + 1
        assert max(len(stream.jobs) for stream in streams) == 1


async def test_a_batch_reaches_as_many_streams_as_it_has_jobs(store: Probe, stub: Stub, views: Views) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 10)
        await views.idle(10)
        before = store.claims
        await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=[create(queue="q") for _ in range(6)]))
        await wait_until(lambda: count(streams) == 6)
        await views.idle(4)
        assert store.claims == before + 6
        assert sorted(len(stream.jobs) for stream in streams) == [0] * 4 + [1] * 6


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_job_created_through_one_replica_wakes_a_stream_of_another(partitions: int) -> None:
    store = Probe(partitions)
    async with serving(store) as stub, serving(store.beside()) as other, streaming(other, "q") as call:
        for _ in range(5):
            await stub.Create(create(queue="q"))
            [job] = await next_jobs(call)
            await other.Complete(complete(job))


@pytest.mark.usefixtures("no_looks")
async def test_streams_to_different_queues_are_woken_for_their_own(stub: Stub, views: Views) -> None:
    async with streaming(stub, "a") as one, streaming(stub, "b", "c") as two, streaming(stub, "c") as three:
        await views.idle(1, "a")
        await views.idle(2, "c")
        await stub.Create(create("in-b", "b"))
        assert [job.job.id for job in await next_jobs(two)] == ["in-b"]
        await stub.Create(create("in-c", "c"))
        assert [job.job.id for job in await next_jobs(three)] == ["in-c"]
        await stub.Create(create("in-a", "a"))
        assert [job.job.id for job in await next_jobs(one)] == ["in-a"]


@pytest.mark.usefixtures("no_looks")
async def test_a_notice_to_a_replica_without_room_is_passed_on(store: Probe, views: Views) -> None:
    async with serving(store) as stub, serving(store.beside()) as other, streaming(stub, "q", "x") as busy:
        await views.idle(1)
        # Longer waiting than the other replica, so first to be told, but it has taken something else meanwhile.
        await stub.Create(create("in-x", "x"))
        await next_jobs(busy)
        async with streaming(other, "q") as idle:
            await stub.Create(create("in-q", "q"))
            assert [job.job.id for job in await next_jobs(idle)] == ["in-q"]


@pytest.mark.usefixtures("no_looks")
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
            await stub.Create(create(queue="q"))
            await wait_until(lambda: count(readings) > number)  # noqa: B023 - waited for here
            if number % 2:
                for reading in readings:
                    await stub.Complete(complete(reading.jobs[-1]))


async def test_a_lost_notice_costs_at_most_a_look(store: Probe, views: Views) -> None:
    assert pace.LOOK_SECONDS < 1.0
    store.deaf = True
    async with serving(store) as stub, streaming(stub, "q") as call:
        for _ in range(3):
            await views.idle(1)
            await store.beside().create(create(queue="q"))  # through another replica: no hand-off
            [job] = await next_jobs(call)
            await stub.Complete(complete(job))


@pytest.mark.usefixtures("no_looks")
async def test_a_stream_that_was_woken_and_went_passes_the_job_on(stub: Stub, views: Views) -> None:
    async with AsyncExitStack() as stack:
        streams = await idle_streams(stack, stub, 5)
        await views.idle(5)
        for stream in streams[:-1]:
            creating = asyncio.ensure_future(stub.Create(create(queue="q")))
            await stream.stop()
            await creating
        # However the cancels met the wake-ups: no job waits while a stream is idle.
        last = streams[-1]
        await wait_until(lambda: len(last.jobs) == 1)


async def test_an_engine_that_is_away_ends_no_stream(store: Probe, stub: Stub) -> None:
    async with streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)
        store.go_down()
        await wait_until(lambda: store.failures > 5)
        store.failure = None
        await stub.Create(create("b", "q"))
        await stub.Complete(complete(job))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


@pytest.mark.parametrize("delay", [0.12, 0.7])
@pytest.mark.usefixtures("no_looks", "no_sweeps")
async def test_a_delayed_job_comes_when_it_is_due_and_never_early(stub: Stub, delay: float) -> None:
    async with streaming(stub, "q") as call:
        since = ms((await stub.Create(create("a", "q", delay=delay))).job.create_time)
        for settle in (
            lambda job: stub.Fail(fail(job, delay=delay)),
            lambda job: stub.Release(release(job, delay=delay)),
            lambda job: stub.Complete(complete(job)),
        ):
            [job] = await next_jobs(call)
            assert ms(job.job.start_time) - since >= delay * 1_000
            await settle(job)
            since = ms((await stub.Get(store_pb2.GetRequest(id="a"))).job.attempts[-1].finish_time)


@pytest.mark.usefixtures("no_looks")
async def test_a_lease_that_runs_out_is_given_on_without_anybody_asking(stub: Stub, views: Views) -> None:
    async with streaming(stub, "q", lease=0.5) as frozen, streaming(stub, "q") as call:
        await views.idle(2)
        await stub.Create(create("a", "q", lease=0.5))
        first, second = Reading(frozen), Reading(call)
        await wait_until(lambda: len(first.jobs + second.jobs) == 2)
        jobs = sorted(first.jobs + second.jobs, key=lambda job: job.job.attempt)
        assert ms(jobs[1].job.start_time) - ms(jobs[0].job.start_time) >= 500
        await first.stop()
        await second.stop()


async def test_idle_streams_claim_nothing(store: Probe, stub: Stub, views: Views) -> None:
    async with AsyncExitStack() as stack:
        await idle_streams(stack, stub, 200)
        await views.idle(200)
        claims, looks = store.claims, store.looks
        await wait_until(lambda: store.looks > looks + 1)
        assert store.claims == claims
