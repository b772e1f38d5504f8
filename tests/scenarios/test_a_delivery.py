"""Jobs that were claimed for a client and never reached it, or were never read there, come back."""

from __future__ import annotations

import asyncio
import random
import signal
import threading

import jobwire
import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.client.test_worker_process import SLOW, has_begun
from tests.client.working import ended, worker_process, working_apart
from tests.requests import claim, complete, create, seconds
from tests.scenarios.scale import scaled
from tests.scenarios.servers import address, client, jobs
from tests.server.probe import connected, stream_request
from tests.wait import wait_until

__all__ = ["address", "client", "jobs"]

RELEASED, UNDELIVERED = job_pb2.ATTEMPT_OUTCOME_RELEASED, job_pb2.ATTEMPT_OUTCOME_UNDELIVERED


async def test_a19_a_client_that_cancels_as_it_is_given_a_job_loses_none(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claimed, and the message that said so never arrived: the job stayed with a worker that had never heard of it
    (hatchet #726). What was not sent goes back at once, what was sent and not read when its receipt is missed.
    """
    chance = random.Random(19)
    ids = [f"job-{number}" for number in range(50)]
    done: set[str] = set()
    read = 0
    left = scaled(1_500)
    async with connected(address) as stub:
        for job_id in ids:
            # A receipt that is missed three times in a row is a loss, and these clients never send one.
            await stub.Create(create(job_id, "q", max_attempts=1_000))

        async def come_and_go() -> None:
            nonlocal left, read
            async with connected(address) as mine:
                while left > 0:
                    left -= 1
                    request = stream_request("q", max_in_flight=chance.randint(1, 4), receipt_timeout=seconds(0.5))
                    call = mine.ClaimStream(request)
                    try:
                        async with asyncio.timeout(chance.random() * 0.02):
                            while isinstance(message := await call.read(), store_pb2.ClaimStreamResponse):
                                read += len(message.jobs.jobs)
                    except TimeoutError:
                        call.cancel()

        await asyncio.gather(*(come_and_go() for _ in range(10)))

        async def all_done() -> bool:
            for claimed in (await stub.Claim(claim("q", max_jobs=50, lease=30))).jobs:
                assert claimed.job.id not in done
                await stub.Complete(complete(claimed))
                done.add(claimed.job.id)
            return len(done) == len(ids)

        await wait_until(all_done, 30)
        records = [(await stub.Get(store_pb2.GetRequest(id=job_id))).job for job_id in ids]
    attempts = sum(job.attempt for job in records)
    with capsys.disabled():
        print(
            f"\nA19: {scaled(1_500)} streams, {attempts} claims, {read} read, {sum(j.losses for j in records)} losses"
        )
    assert attempts > len(ids) + scaled(1_500) / 10
    assert sum(job.failures for job in records) == 0


@pytest.mark.parametrize("grace", [0.0, 20.0])
async def test_a20_stop_gives_back_what_was_not_begun(address: str, client: jobwire.Client, grace: float) -> None:
    """Jobs that had been taken off the queue and waited unread in the process vanished when it was shut down (celery
    #4354, kombu #305, #413). Here the loop stands still while they arrive, and is told to stop before it sees them.
    """
    worker = jobwire.Worker(address, queues="q", concurrency=1, max_in_flight=50, drain_grace=grace, lease_duration=60)
    blocking, go_on = threading.Event(), threading.Event()

    @worker.handler()
    async def block(job: jobwire.JobContext) -> str:
        blocking.set()
        worker.stop()
        go_on.wait()
        return "done"

    async with working_apart(worker):
        first = await client.create(queue="q", ttl=60)
        await wait_until(blocking.is_set)
        rest = [await client.create(queue="q", ttl=60) for _ in range(49)]

        async def are_held() -> bool:
            return (await client.get_queue("q")).stats.running == 50

        await wait_until(are_held)
        go_on.set()
    assert (await ended(client, first)).result == b"done"
    # Given back before the worker ended, not when the leases run out.
    assert (await client.get_queue("q")).stats.ready == 49
    for job in rest:
        now = await client.get(job.id)
        assert (now.failures, now.losses, [attempt.outcome for attempt in now.attempts]) == (0, 0, [RELEASED])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a20_what_a_frozen_process_was_sent_outlives_it(
    address: str, client: jobwire.Client, number: signal.Signals
) -> None:
    """The same with a process that reads nothing more, so that the jobs wait in its socket: it is told to stop, or
    killed. A job that nobody confirmed was no attempt.
    """
    with worker_process(SLOW, address, "20", "3", "50") as process:
        await client.create(queue="q", ttl=60, payload="0")
        await has_begun(process)

        async def running(count: int) -> bool:
            return (await client.get_queue("q")).stats.running == count

        await wait_until(lambda: running(0))
        process.send_signal(signal.SIGSTOP)
        created = [await client.create(queue="q", ttl=60, payload="0") for _ in range(50)]
        await wait_until(lambda: running(50))
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        await asyncio.to_thread(process.wait, 60)
    left = {job.id for job in created}

    async def all_done() -> bool:
        for claimed in await client.claim("q", max_jobs=50, lease_duration=30):
            assert (claimed.job.failures, claimed.job.losses) == (0, 0)
            outcomes = {attempt.outcome for attempt in claimed.job.attempts}
            assert outcomes <= ({UNDELIVERED} if number == signal.SIGKILL else {UNDELIVERED, RELEASED})
            await client.complete(claimed)
            left.discard(claimed.job.id)
        return not left or (number == signal.SIGTERM and await running(0))

    await wait_until(all_done)
    # Those that a process still finishes after SIGTERM it has begun, and settles.
    for job in created:
        await ended(client, job)
