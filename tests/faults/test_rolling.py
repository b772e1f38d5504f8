"""Deploys: servers restarted one at a time under load, and ends that are hurried."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence

import jobwire
import pytest
from jobwire_server.store.times import timestamp_ms

from tests.faults.conftest import Tell
from tests.faults.deployment import Deployment, deployment, loaded, seeded, target
from tests.faults.processes import WorkerProcess
from tests.history.recorder import Call, Recorder
from tests.scenarios.scale import scaled
from tests.wait import wait_until

DAY = 86_400.0
LEASE_SECONDS = 5.0
SWEEP_SECONDS = 0.5
BUSY_SECONDS = 5.0
"""What a busy machine may add."""
HELD, WORKERS = 200, 4
GRACE_SECONDS = 0.5


@pytest.mark.timeout(120 + scaled(60))
async def test_a09_leases_outlive_rolling_restarts_and_callers_see_no_error(tell: Tell) -> None:
    """Recovery that is tied to a process's start came hours late, or 3 s after a deploy although the work went on
    (sidekiq #4635, #5540, #4611). Here: while three servers are restarted in turn, every lease with heartbeats is kept,
    a dead worker's come back on time, and callers of our client notice nothing.
    """
    seeded()
    async with deployment(3, WORKERS, lease=LEASE_SECONDS, concurrency=HELD // (WORKERS - 1) + 25) as at:
        held = [f"held-{number}" for number in range(HELD)]
        async with jobwire.connect(target(at.servers)) as client:
            recorder = at.recorder("holder")
            for job in held:
                began = time.monotonic()
                await client.create(
                    job_id=job, queue="q", kind="held", ttl=DAY, payload=str(at.release), max_attempts=9
                )
                recorder.write(Call.CREATE, job, began)
            await wait_until(lambda: len(_held(at.workers.living(), "held-")) == HELD, 60)
            callers = [Caller(at, number) for number in range(6)]
            rounds = scaled(2)
            async with asyncio.TaskGroup() as calling:
                for caller in callers:
                    calling.create_task(caller.call_for_ever())
                for round_ in range(rounds):
                    for index, server in enumerate(at.servers):
                        assert await server.stop() == 0
                        if (round_, index) == (0, 0):
                            victim = at.workers.living()[0]
                            orphans = await _killed(victim)
                            killed_ms = time.time() * 1_000
                        await server.start()
                        await asyncio.gather(*(caller.progress() for caller in callers))
                # The rest of the lease and what comes after, however quick the restarts were.
                await wait_until(lambda: len(_held(at.workers.living(), "held-")) == HELD, 60)
                for caller in callers:
                    caller.stop()
            at.release.touch()
        done = {job for caller in callers for job in caller.done}
        line = await at.finish(done | set(held))
        async with jobwire.connect(target(at.servers)) as client:
            records = [record for record in await client.batch_get(held, full=True) if record is not None]

    assert orphans
    for record in records:
        if record.id not in orphans:
            assert (record.attempt, record.losses) == (1, 0), record
        else:
            # Delivered again; yet again, if a stream ended with it on its way.
            assert record.attempt >= 2, record
            assert record.losses == 1, record
            lost_ms = timestamp_ms(record.attempts[0].finish_time)
            assert lost_ms < killed_ms + (LEASE_SECONDS + SWEEP_SECONDS + BUSY_SECONDS) * 1_000
    tell(f"{3 * rounds} restarts, {len(orphans)} leases of a dead worker; {line}")


class Caller:
    """Creates jobs and waits for their ends with our client, and does some itself: no call may fail."""

    def __init__(self, at: Deployment, number: int) -> None:
        self.done: set[str] = set()
        self._target = target(at.servers, number % len(at.servers))
        self._recorder: Recorder = at.recorder(f"caller-{number}")
        self._queue = f"own-{number}"
        self._name = f"called-{number}"
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def progress(self) -> None:
        """Returns when a job that is begun from now on is done."""
        known = len(self.done)
        await wait_until(lambda: len(self.done) > known + 1, 30)

    async def call_for_ever(self) -> None:
        async with jobwire.connect(self._target) as client:
            while not self._stopped:
                job_id = f"{self._name}-{len(self.done)}"
                began = time.monotonic()
                await client.create(job_id=job_id, queue="q", ttl=DAY, max_attempts=9)
                self._recorder.write(Call.CREATE, job_id, began)
                ended = await client.get(job_id, wait=60)
                assert ended.status == jobwire.JobStatus.JOB_STATUS_SUCCEEDED, ended
                self.done.add(job_id)
                await self._do_one(client)

    async def _do_one(self, client: jobwire.Client) -> None:
        job_id = (await client.create(queue=self._queue, ttl=DAY)).id
        claimed: Sequence[jobwire.ClaimedJob] = []
        while not claimed:
            try:
                claimed = await client.claim(self._queue, lease_duration=LEASE_SECONDS, wait=1)
            except jobwire.Unavailable:
                continue  # the one verb that our client does not repeat
        assert claimed[0].job.id == job_id
        await client.heartbeat(claimed)
        await client.complete(claimed[0], "done")


async def _killed(victim: WorkerProcess) -> set[str]:
    """kill -9. The jobs that it held for long."""
    victim.send_signal(signal.SIGSTOP)
    held = _held([victim], "held-")
    victim.kill()
    return held


def _held(workers: Sequence[WorkerProcess], prefix: str) -> set[str]:
    return {job for worker in workers for job in worker.held() if job.startswith(prefix)}


@pytest.mark.timeout(120 + scaled(60))
@pytest.mark.parametrize("victim", ["server", "worker"])
async def test_a22_a_kill_within_the_grace_loses_nothing(victim: str, tell: Tell) -> None:
    """A second, harder signal while a process was shutting down left work pending for ever (sidekiq #4715, celery
    #1789). Here: SIGTERM, then SIGKILL at any moment of the grace, and every rule holds.
    """
    rng, rounds, hurried = seeded(), scaled(3), 0
    flags = ("--drain-grace", str(GRACE_SECONDS))
    async with deployment(2, 3, lease=1.0, pause=0.3, flags=flags, proxied_engine=True) as at:
        at.proxies[0].delay_seconds = 0.02
        async with loaded(at, 40, rng) as load, at.workers.kept_at(3):
            for _ in range(rounds):
                if victim == "server":
                    hurried += await _end_server(at, rng)
                else:
                    hurried += await _end_worker(at, rng)
                await load.progress()
        line = await at.finish(load.acknowledged)
    tell(f"{rounds} SIGTERMs of a {victim}, {hurried} of them still running at the SIGKILL; {line}")


async def _end_server(at: Deployment, rng: random.Random) -> bool:
    server = rng.choice(at.servers)
    server.send_signal(signal.SIGTERM)
    await asyncio.sleep(rng.uniform(0, GRACE_SECONDS))
    hurried = not server.has_ended()
    server.kill()
    await server.start()
    return hurried


async def _end_worker(at: Deployment, rng: random.Random) -> bool:
    await wait_until(lambda: any(worker.held() for worker in at.workers.living()))
    worker = rng.choice([worker for worker in at.workers.living() if worker.held()])
    worker.send_signal(signal.SIGTERM)
    await asyncio.sleep(rng.uniform(0, GRACE_SECONDS))
    hurried = not worker.has_ended()
    worker.kill()
    return hurried
