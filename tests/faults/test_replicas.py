"""Two and three servers on one engine: what one begins, any other goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import permutations

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.app import running
from jobwire_server.store.redis import RedisStore
from jobwire_server.store.times import timestamp_ms

from tests.engines import Engine
from tests.requests import SUCCEEDED, claim, complete, create
from tests.server.probe import Stub, connected, next_jobs, next_message, stream_request
from tests.wait import wait_until

JOBS = 60
SECONDS = 1.0


@pytest.fixture(params=[2, 3], ids=["2-servers", "3-servers"])
async def stubs(request: pytest.FixtureRequest, engine: Engine) -> AsyncIterator[list[Stub]]:
    """One per server."""
    await engine.flush()
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(request.param):
            store = await RedisStore.connect(engine.url, sweep_interval_ms=0)
            stack.push_async_callback(store.close)
            server = await stack.enter_async_context(running(store))
            found.append(await stack.enter_async_context(connected(server.address)))
        yield found


@pytest.mark.usefixtures("no_looks", "no_checks")
async def test_a_settlement_through_another_server_gives_the_stream_its_credit_back(stubs: list[Stub]) -> None:
    for index, (one, another) in enumerate(permutations(stubs, 2)):
        queue = f"q{index}"
        for _ in range(5):
            await one.Create(create(queue=queue))
        call = one.ClaimStream(stream_request(queue, max_in_flight=1))
        assert (await next_message(call)).HasField("opened")
        for _ in range(5):
            [job] = await next_jobs(call, within=30)
            await another.Complete(complete(job, b"by another"))
            done = (await one.Get(store_pb2.GetRequest(id=job.job.id, view=job_pb2.JOB_VIEW_FULL))).job
            assert (done.status, done.result) == (SUCCEEDED, b"by another")
        call.cancel()


@pytest.mark.usefixtures("no_looks")
async def test_a_create_through_one_server_wakes_a_stream_on_another(stubs: list[Stub]) -> None:
    for index, (one, another) in enumerate(permutations(stubs, 2)):
        call = another.ClaimStream(stream_request(f"q{index}", max_in_flight=10))
        assert (await next_message(call)).HasField("opened")
        for _ in range(5):
            created = (await one.Create(create(queue=f"q{index}"))).job
            assert [job.job.id for job in await next_jobs(call, within=30)] == [created.id]
        call.cancel()


async def test_timers_and_sweeps_of_all_at_once_do_everything_once(stubs: list[Stub]) -> None:
    """Every server sweeps. Each lease is lost once, each delay ends once and not early, each job is delivered once."""
    for number in range(JOBS):
        await stubs[number % len(stubs)].Create(create(f"lease-{number}", "leases", max_attempts=9))
    taken = 0
    while taken < JOBS:
        jobs = (await stubs[taken % len(stubs)].Claim(claim("leases", max_jobs=7, lease=SECONDS))).jobs
        taken += len(jobs)
    for number in range(JOBS):
        await stubs[number % len(stubs)].Create(create(f"delay-{number}", "delays", delay=SECONDS))

    received: list[store_pb2.ClaimedJob] = []
    calls = [
        stub.ClaimStream(stream_request(queue, max_in_flight=2 * JOBS))
        for stub in stubs
        for queue in ("leases", "delays")
    ]
    reading = [asyncio.create_task(read(call, received)) for call in calls]
    await wait_until(lambda: len(received) >= 2 * JOBS, 30)
    for job in received:
        await stubs[-1].Complete(complete(job))
    records = await all_jobs(stubs[0])
    for call in calls:
        call.cancel()
    await asyncio.wait(reading)

    assert sorted(job.job.id for job in received) == sorted(job.id for job in records)
    for record in records:
        assert record.status == SUCCEEDED
        if record.queue == "leases":
            assert (record.attempt, record.losses) == (2, 1)
            [lost, _] = record.attempts
            assert lost.outcome == job_pb2.ATTEMPT_OUTCOME_LOST
            assert timestamp_ms(lost.finish_time) - timestamp_ms(lost.start_time) >= SECONDS * 1_000
        else:
            assert (record.attempt, record.losses) == (1, 0)
            [only] = record.attempts
            assert timestamp_ms(only.start_time) >= timestamp_ms(record.run_time)


async def all_jobs(stub: Stub) -> list[job_pb2.Job]:
    ids = [f"{kind}-{number}" for kind in ("lease", "delay") for number in range(JOBS)]
    request = store_pb2.BatchGetRequest(ids=ids, view=job_pb2.JOB_VIEW_FULL)
    return [result.job for result in (await stub.BatchGet(request)).results]


async def read(
    call: grpc.aio.UnaryStreamCall[store_pb2.ClaimStreamRequest, store_pb2.ClaimStreamResponse],
    received: list[store_pb2.ClaimedJob],
) -> None:
    while True:
        message = await call.read()
        assert isinstance(message, store_pb2.ClaimStreamResponse)
        received.extend(message.jobs.jobs)
