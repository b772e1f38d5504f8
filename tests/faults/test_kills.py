"""kill -9 of a worker, of the server, of the engine, while jobs are being submitted and done: nothing is lost, and no
completion is accepted twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

import jobwire
import pytest

from tests.faults.processes import Server, Workers, gone, processes
from tests.history.checker import check
from tests.history.recorder import Call, Event
from tests.wait import wait_until

JOBS = 2_000
# Producers stay so many jobs ahead of the workers, so that every kill comes while jobs are submitted and done.
AHEAD = 300


@pytest.mark.timeout(240)
async def test_kills_of_worker_server_and_engine_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with processes(pause=0.02) as (server, workers):
        await server.start()
        workers.start("w1")
        workers.start("w2")
        async with jobwire.connect(server.address) as client:
            acknowledged: set[str] = set()
            created: list[Event] = []
            gate = asyncio.Semaphore(AHEAD)
            pace = asyncio.create_task(open_gate(gate, workers))
            producers = [asyncio.create_task(produce(client, acknowledged, created, n, gate)) for n in range(20)]
            held = await kill_each(server, workers, acknowledged)
            await asyncio.gather(*producers, pace)
            await wait_until(lambda: done(client, acknowledged), 60)
            jobs = await read_all(client, sorted(acknowledged))

        events = [*created, *workers.events()]
        with capsys.disabled():
            print(
                f"\n{len(acknowledged)} jobs acknowledged, {len(workers.completed())} completions accepted, "
                f"{sum(job.attempt - 1 for job in jobs)} redeliveries, {held} held by the killed worker"
            )

    assert len(acknowledged) == JOBS
    assert held > 0
    assert check(events, {job.id: job for job in jobs}) == []
    # Every rule but "SUCCEEDED", which is this run's own: nothing here fails or is cancelled.
    assert [job.id for job in jobs if job.status != jobwire.JobStatus.JOB_STATUS_SUCCEEDED] == []


async def open_gate(gate: asyncio.Semaphore, workers: Workers) -> None:
    """Lets one more job be submitted for each that is done."""
    passed = 0
    while passed < JOBS - AHEAD:
        await asyncio.sleep(0.05)
        done = len(workers.completed())
        for _ in range(min(done, JOBS - AHEAD) - passed):
            gate.release()
        passed = max(passed, min(done, JOBS - AHEAD))


async def produce(
    client: jobwire.Client, acknowledged: set[str], created: list[Event], number: int, gate: asyncio.Semaphore
) -> None:
    """Submits this producer's share, each job until it is acknowledged."""
    for index in range(number, JOBS, 20):
        await gate.acquire()
        job_id, began = f"job-{index}", time.monotonic()
        while job_id not in acknowledged:
            try:
                await client.create(job_id=job_id, queue="q", ttl=600, max_attempts=20)
            except (jobwire.Unavailable, jobwire.DeadlineExceeded):
                continue  # unknown whether it was stored: the same id again
            except jobwire.AlreadyExists:
                pass  # it was
            acknowledged.add(job_id)
            created.append(Event(Call.CREATE, job_id, began, time.monotonic()))


async def kill_each(server: Server, workers: Workers, acknowledged: set[str]) -> int:
    """Kills one of each kind, each while jobs come in and are being done. How many jobs the worker held."""

    async def reached(jobs: int) -> None:
        await wait_until(lambda: len(workers.completed()) >= jobs, 60)
        assert len(acknowledged) < JOBS, "the kill would come after the last job was submitted"

    await reached(200)
    held = await workers.kill("w1")
    workers.start("w3")

    await reached(600)
    engine = server.engine_pid()
    server.kill()
    await gone(engine)
    await server.start()

    await reached(1_000)
    engine = server.engine_pid()
    os.kill(engine, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return server.engine_pid() != engine
        except OSError:
            return False

    await wait_until(is_back)
    return len(held)


async def done(client: jobwire.Client, acknowledged: set[str]) -> bool:
    stats = (await client.get_queue("q")).stats
    return stats.ready + stats.scheduled + stats.running == 0 and len(acknowledged) == JOBS


async def read_all(client: jobwire.Client, ids: list[str]) -> list[jobwire.Job]:
    jobs: list[jobwire.Job] = []
    while len(jobs) < len(ids):
        answers = await client.batch_get(ids[len(jobs) : len(jobs) + 1_000], full=True)
        jobs.extend(job for job in answers if job is not None)
    return jobs
