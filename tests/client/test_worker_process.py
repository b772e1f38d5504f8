"""A worker as a process of its own: SIGTERM drains it, SIGKILL costs an attempt."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import jobwire

from tests.client.working import ended, status_of, worker_process
from tests.wait import wait_until

SLOW = """
import asyncio, sys
import jobwire

worker = jobwire.Worker(sys.argv[1], queues="q", concurrency=1, max_in_flight=2, lease_duration=float(sys.argv[3]),
                        drain_grace=float(sys.argv[2]))

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
    async with asyncio.timeout(15):
        assert await asyncio.to_thread(process.stdout.readline) == "begun\n"


async def test_sigterm_drains(address: str, client: jobwire.Client) -> None:
    with worker_process(SLOW, address, "20", "30") as process:
        running = await client.create(queue="q", ttl=60, payload="1.5")
        await has_begun(process)
        waiting = await client.create(queue="q", ttl=60, payload="1.5")

        async def is_prefetched() -> bool:
            return await status_of(client, waiting.id) == "RUNNING"

        await wait_until(is_prefetched)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 15) == 0
    assert (await client.get(running.id, full=True)).result == b"done"
    assert await status_of(client, waiting.id) == "PENDING"
    assert (await client.get(waiting.id)).losses == 0


async def test_sigterm_gives_back_what_does_not_end_in_time(address: str, client: jobwire.Client) -> None:
    with worker_process(SLOW, address, "0.2", "30") as process:
        job = await client.create(queue="q", ttl=60, payload="60")
        await has_begun(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 15) == 0
    now = await client.get(job.id)
    assert (await status_of(client, job.id), now.failures, now.losses) == ("PENDING", 0, 0)


async def test_a_job_that_kills_its_worker_ends(address: str, client: jobwire.Client) -> None:
    job = await client.create(queue="q", ttl=60, payload="60", max_attempts=2)
    for _ in range(2):
        with worker_process(SLOW, address, "0", "1") as process:
            await has_begun(process)
            process.kill()
    done = await ended(client, job)
    assert (done.status, done.losses, done.attempt) == (jobwire.JobStatus.JOB_STATUS_FAILED, 2, 2)
    assert done.error.code == "LEASE_EXPIRED"
