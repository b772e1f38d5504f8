"""A worker as a process of its own: SIGTERM drains it, SIGKILL costs an attempt, SIGSTOP before the receipt none."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import jobwire
from jobwire.v1 import job_pb2

from tests.client.working import ended, receipted, status_of, worker_process, working
from tests.wait import wait_until

SLOW = """
import asyncio, sys
import jobwire

address, grace, lease, in_flight = sys.argv[1:]
worker = jobwire.Worker(address, queues="q", concurrency=1, max_in_flight=int(in_flight),
                        lease_duration=float(lease), drain_grace=float(grace))

@worker.handler()
async def slow(job):
    print("begun", flush=True)
    await asyncio.sleep(float(job.payload))
    return "done"

worker.run()
print("ended", flush=True)
"""


async def has_begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(process.stdout.readline) == "begun\n"


async def test_sigterm_drains(address: str, client: jobwire.Client) -> None:
    with worker_process(SLOW, address, "20", "30", "2") as process:
        running = await client.create(queue="q", ttl=60, payload="1.5")
        await has_begun(process)
        waiting = await client.create(queue="q", ttl=60, payload="1.5")

        async def is_prefetched() -> bool:
            return await status_of(client, waiting.id) == "RUNNING"

        await wait_until(is_prefetched)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    assert (await client.get(running.id, full=True)).result == b"done"
    assert await status_of(client, waiting.id) == "PENDING"
    assert (await client.get(waiting.id)).losses == 0


async def test_sigterm_gives_back_what_does_not_end_in_time(address: str, client: jobwire.Client) -> None:
    with worker_process(SLOW, address, "0.2", "30", "2") as process:
        job = await client.create(queue="q", ttl=60, payload="60")
        await has_begun(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    now = await client.get(job.id)
    assert (await status_of(client, job.id), now.failures, now.losses) == ("PENDING", 0, 0)


async def test_a_job_that_kills_its_worker_ends(address: str, client: jobwire.Client) -> None:
    job = await client.create(queue="q", ttl=60, payload="60", max_attempts=2)
    for _ in range(2):
        with worker_process(SLOW, address, "0", "1", "2") as process:
            await has_begun(process)
            await receipted(client, job)
            process.kill()
    done = await ended(client, job, "FAILED")
    assert (done.losses, done.attempt) == (2, 2)
    assert done.error.code == "LEASE_EXPIRED"


async def test_what_a_frozen_worker_was_sent_goes_elsewhere(address: str, client: jobwire.Client) -> None:
    with worker_process(SLOW, address, "0", "3", "1") as process:
        await client.create(queue="q", ttl=60, payload="0")
        await has_begun(process)

        async def idle() -> bool:
            return (await client.get_queue("q")).stats.running == 0

        await wait_until(idle)
        process.send_signal(signal.SIGSTOP)
        job = await client.create(queue="q", ttl=60, payload="0")

        async def is_undelivered() -> bool:
            now = await client.get(job.id)
            return (now.undelivered, now.losses) == (1, 0)

        await wait_until(is_undelivered, seconds=30)
        other = jobwire.Worker(client, queues="q")

        @other.handler()
        async def handle(job: jobwire.JobContext) -> str:
            return "elsewhere"

        async with working(other):
            done = await ended(client, job)
        assert (done.result, done.losses, done.failures) == (b"elsewhere", 0, 0)
        assert [attempt.outcome for attempt in done.attempts] == [
            job_pb2.ATTEMPT_OUTCOME_UNDELIVERED,
            job_pb2.ATTEMPT_OUTCOME_COMPLETED,
        ]
        process.send_signal(signal.SIGCONT)
        await ended(client, await client.create(queue="q", ttl=60, payload="0"))
        process.send_signal(signal.SIGTERM)
        # Of what it has been sent since it stood still, it began the last job only.
        rest, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert rest == "begun\nended\n"
