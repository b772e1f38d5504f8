"""200 idle streams cost next to nothing, and one Create reaches one of them with one claim."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
import redis
from jobwire.v1 import store_pb2, store_pb2_grpc

from tests.faults.processes import cpu_seconds, processes
from tests.requests import create
from tests.wait import wait_until

STREAMS = 200
SECONDS = 30
CPU_SECONDS = 0.6


@pytest.mark.timeout(120)
async def test_idle_streams_cost_almost_nothing_and_a_create_reaches_one(capsys: pytest.CaptureFixture[str]) -> None:
    with processes() as (server, _):
        await server.start()
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
            stub: store_pb2_grpc.StoreAsyncStub = store_pb2_grpc.StoreStub(channel)
            request = store_pb2.ClaimStreamRequest(queues=[store_pb2.QueueRef(queue="q")], max_in_flight=10)
            received: list[store_pb2.ClaimedJob] = []
            for _ in range(STREAMS):
                call = stub.ClaimStream(request)
                stack.callback(call.cancel)
                await call.read()  # opened
                reading = asyncio.create_task(read_jobs(call, received))
                stack.push_async_callback(asyncio.wait, [reading])
                stack.callback(reading.cancel)
            with server.engine() as engine:
                await wait_until(lambda: engine.exists("jobwire:{0}:waiters:default\x1fq") == 1)
                pids = (server.pid, server.engine_pid())

                before = await cpu_seconds(*pids)
                await asyncio.sleep(SECONDS)  # the figure is for a span of time
                used = await cpu_seconds(*pids) - before

                with engine.monitor() as monitor:
                    await stub.Create(create("job", "q"))
                    await wait_until(lambda: len(received) == 1)
                    # A stream that was woken for nothing would claim by the next look, at most a second later.
                    looks = sweeps(engine.info("commandstats"))
                    await wait_until(lambda: sweeps(engine.info("commandstats")) >= looks + 3)
                    claims = claim_scripts(engine, monitor)

    with capsys.disabled():
        print(f"\n{STREAMS} idle streams: {used:.2f} CPU-seconds in {SECONDS} s; one Create: {claims} claim script")
    assert used <= CPU_SECONDS
    assert [job.job.id for job in received] == ["job"]
    assert claims == 1


async def read_jobs(
    call: grpc.aio.UnaryStreamCall[store_pb2.ClaimStreamRequest, store_pb2.ClaimStreamResponse],
    received: list[store_pb2.ClaimedJob],
) -> None:
    while True:
        message = await call.read()
        assert isinstance(message, store_pb2.ClaimStreamResponse)
        received.extend(message.jobs.jobs)


def claim_scripts(engine: redis.Redis, monitor: Any) -> int:
    """How many there were since the monitor began: each looks whether an earlier try of it took something."""
    engine.echo("until here")
    found = 0
    while "until here" not in (command := monitor.next_command()["command"]):
        found += command.startswith("GET ") and ":claimed:" in command
    return found


def sweeps(stats: dict[str, dict[str, int]]) -> int:
    """A sweep reads each of three timers once."""
    return stats.get("cmdstat_zrangebyscore", {}).get("calls", 0) // 3
