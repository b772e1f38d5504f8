"""The worker's leases: kept while they can be, let go in time when they cannot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import jobwire
import pytest
from jobwire import _feed
from jobwire._leases import HeldLease

from tests.client.working import ended, receipted, working, working_apart
from tests.proxy import Proxy
from tests.wait import wait_until

# Long enough that a busy machine answers a heartbeat within a third of it.
LEASE = 5.0


class Sleeper:
    """A handler that runs until told to go on, and knows how it ended."""

    def __init__(self, worker: jobwire.Worker) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.was_cancelled = False
        worker.handler()(self.handle)

    async def handle(self, job: jobwire.JobContext) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = job.cancelled
            raise
        return f"attempt {job.job.attempt}"


async def kept(client: jobwire.Client, job: jobwire.Job, seconds: float) -> None:
    """Returns when heartbeats have kept the running job for longer than so long."""

    async def for_long() -> bool:
        now = await client.get(job.id)
        return now.heartbeat_time.ToDatetime() - now.start_time.ToDatetime() > timedelta(seconds=seconds)

    await wait_until(for_long, seconds=60)


@pytest.fixture
async def proxy(address: str) -> AsyncIterator[Proxy]:
    """A proxy before the server."""
    async with Proxy.before(address) as proxy:
        yield proxy


def test_a_lease_is_let_go_before_the_server_gives_its_job_away() -> None:
    claimed = jobwire.ClaimedJob(lease_token="t")
    claimed.lease_duration.FromSeconds(30)
    lease = HeldLease(claimed, sent=time.monotonic(), receipt_timeout=10, doubtful=False)
    assert lease.due < lease.extended  # its receipt is
    assert lease.deadline == lease.extended + 9
    lease.receipted = True
    assert lease.due == lease.extended + 10
    assert lease.deadline == lease.extended + 29
    claimed.lease_duration.FromMilliseconds(500)
    assert (
        HeldLease(claimed, sent=time.monotonic(), receipt_timeout=10, doubtful=False).deadline
        <= time.monotonic() + 0.45
    )


async def test_a_job_longer_than_its_lease_runs_once(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", lease_duration=LEASE)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        await kept(client, job, LEASE)
        sleeper.go_on.set()
        done = await ended(client, job)
    assert (done.attempt, done.result) == (1, b"attempt 1")


async def test_a_blocked_event_loop_keeps_its_lease(address: str, client: jobwire.Client) -> None:
    worker = jobwire.Worker(address, queues="q", lease_duration=LEASE, concurrency=2)
    go_on = threading.Event()

    @worker.handler()
    async def blocks(job: jobwire.JobContext) -> None:
        go_on.wait()

    async with working_apart(worker):
        job = await client.create(queue="q", ttl=60)
        await kept(client, job, LEASE)
        go_on.set()
        done = await ended(client, job)
    assert (done.attempt, done.losses) == (1, 0)


@pytest.mark.parametrize("how", ["reclaimed", "deleted"])
async def test_a_lost_lease_cancels_its_handler(
    client: jobwire.Client, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    worker = jobwire.Worker(client, queues="q", lease_duration=2.0, concurrency=1)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        sleeper.begun.clear()
        if how == "deleted":
            await client.delete(job.id)
        else:
            await client.reclaim_stale(heartbeat_before=datetime.now(UTC) + timedelta(minutes=1))
        await wait_until(lambda: sleeper.was_cancelled)
        sleeper.go_on.set()
        if how == "reclaimed":
            done = await ended(client, job)
            assert (done.result, done.losses, done.failures) == (b"attempt 2", 1, 0)
    assert "lease lost" in caplog.text


async def test_without_answers_the_handler_is_cancelled_and_its_outcome_thrown_away(
    client: jobwire.Client, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    worker = jobwire.Worker(proxy.address, queues="q", lease_duration=1.0, drain_grace=0)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        await receipted(client, job)
        proxy.freeze()
        await wait_until(lambda: sleeper.was_cancelled, seconds=30)
        proxy.thaw()
        sleeper.go_on.set()
        # Another attempt ends it, not what the first one might have sent.
        done = await ended(client, job)
    assert done.result == f"attempt {done.attempt}".encode()
    assert done.attempt > 1
    assert "lease lost" in caplog.text


async def test_a_swallowed_heartbeat_connection_is_replaced(client: jobwire.Client, proxy: Proxy) -> None:
    worker = jobwire.Worker(proxy.address, queues="q", lease_duration=3.0)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        await receipted(client, job)
        frozen_at = datetime.now(UTC)
        proxy.freeze(new_connections_flow=True)

        async def is_beaten_again() -> bool:
            beaten = (await client.get(job.id)).heartbeat_time.ToDatetime(UTC)
            return beaten > frozen_at + timedelta(seconds=3)

        await wait_until(is_beaten_again, seconds=30)
        assert not sleeper.was_cancelled
        proxy.thaw()
        sleeper.go_on.set()
        assert (await ended(client, job)).attempt == 1


async def test_jobs_that_come_while_the_loop_is_blocked_are_kept(address: str, client: jobwire.Client) -> None:
    worker = jobwire.Worker(address, queues="q", lease_duration=LEASE, concurrency=2)
    blocking, go_on = threading.Event(), threading.Event()

    @worker.handler("block")
    async def blocks(job: jobwire.JobContext) -> None:
        blocking.set()
        go_on.wait()

    @worker.handler()
    async def note(job: jobwire.JobContext) -> None: ...

    async with working_apart(worker):
        first = await client.create(queue="q", kind="block", ttl=60)
        await wait_until(blocking.is_set)
        second = await client.create(queue="q", ttl=60)
        await kept(client, second, LEASE)
        go_on.set()
        for job in (first, second):
            done = await ended(client, job)
            assert (done.attempt, done.losses) == (1, 0)


async def test_a_job_that_was_long_on_its_way_does_not_begin_before_it_is_known_to_be_held(
    client: jobwire.Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stands still for longer than one lease, and shorter than the other."""
    monkeypatch.setattr(_feed, "_MISSED", 30)  # so that the stream is not given up meanwhile
    worker = jobwire.Worker(proxy.address, queues="q", concurrency=2)
    begun: list[tuple[str, int]] = []

    @worker.handler()
    async def note(job: jobwire.JobContext) -> None:
        begun.append((job.job.id, job.job.attempt))

    async with working(worker):
        await ended(client, await client.create(queue="q", ttl=60))
        begun.clear()
        proxy.freeze()
        frozen_at = time.monotonic()
        short = await client.create(queue="q", ttl=60, job_id="short", lease_duration=0.5)
        long = await client.create(queue="q", ttl=60, job_id="long", lease_duration=30)

        async def is_undelivered() -> bool:
            return (await client.get("short")).undelivered > 0

        await wait_until(is_undelivered)
        # Longer than keepalives are apart.
        await wait_until(lambda: time.monotonic() - frozen_at > 3)
        proxy.thaw()
        done = await ended(client, short)
        assert (await ended(client, long)).attempt == 1
    assert sorted(begun) == [("long", 1), ("short", done.attempt)]
    assert (done.attempt > 1, done.losses) == (True, 0)
