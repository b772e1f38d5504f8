"""The worker's leases: kept while they can be, let go in time when they cannot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import jobwire
import pytest

from tests.client.proxy import Proxy
from tests.client.working import ended, working, working_apart
from tests.wait import wait_until

SUCCEEDED = jobwire.JobStatus.JOB_STATUS_SUCCEEDED


class Sleeper:
    """A handler that runs until told to go on, and knows how it ended."""

    def __init__(self, worker: jobwire.Worker) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled_at: datetime | None = None
        worker.handler()(self.handle)

    async def handle(self, job: jobwire.JobContext) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            assert job.cancelled
            self.cancelled_at = datetime.now(UTC)
            raise
        return f"attempt {job.job.attempt}"


@pytest.fixture
async def proxy(address: str) -> AsyncIterator[Proxy]:
    """A proxy before the server."""
    async with Proxy.before(address) as proxy:
        yield proxy


async def test_a_job_longer_than_its_lease_runs_once(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", lease_duration=1.0)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        claimed_at = (await client.get(job.id)).start_time.ToDatetime()

        async def kept_for_two_leases() -> bool:
            return (await client.get(job.id)).heartbeat_time.ToDatetime() - claimed_at > timedelta(seconds=2)

        await wait_until(kept_for_two_leases)
        sleeper.go_on.set()
        done = await ended(client, job)
    assert (done.attempt, done.result) == (1, b"attempt 1")


async def test_a_blocked_event_loop_keeps_its_lease(address: str, client: jobwire.Client) -> None:
    worker = jobwire.Worker(address, queues="q", lease_duration=1.0, concurrency=2)

    @worker.handler()
    async def blocks(job: jobwire.JobContext) -> None:
        time.sleep(2.5)  # noqa: ASYNC251 - the point

    async with working_apart(worker):
        done = await ended(client, await client.create(queue="q", ttl=60))
    assert (done.status, done.attempt, done.losses) == (SUCCEEDED, 1, 0)


@pytest.mark.parametrize("how", ["reclaimed", "deleted"])
async def test_a_lost_lease_cancels_its_handler(
    client: jobwire.Client, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    worker = jobwire.Worker(client, queues="q", lease_duration=0.9, concurrency=1)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        sleeper.begun.clear()
        if how == "deleted":
            await client.delete(job.id)
        else:
            await client.reclaim_stale(heartbeat_before=datetime.now(UTC) + timedelta(minutes=1))
        await wait_until(lambda: sleeper.cancelled_at is not None)
        sleeper.go_on.set()
        if how == "reclaimed":
            done = await ended(client, job)
            assert (done.result, done.losses, done.failures) == (b"attempt 2", 1, 0)
    assert "lease lost" in caplog.text


async def test_without_answers_the_handler_is_cancelled_before_the_server_gives_the_job_away(
    client: jobwire.Client, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    worker = jobwire.Worker(proxy.address, queues="q", lease_duration=1.0, drain_grace=0)
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        proxy.freeze()
        expires = (await client.get(job.id)).lease_expire_time.ToDatetime(UTC)
        await wait_until(lambda: sleeper.cancelled_at is not None)
        assert sleeper.cancelled_at is not None
        assert sleeper.cancelled_at < expires
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

        async def was_beaten() -> bool:
            now = await client.get(job.id)
            return now.heartbeat_time.ToDatetime() > now.start_time.ToDatetime()

        await wait_until(was_beaten)
        frozen_at = datetime.now(UTC)
        proxy.freeze(new_connections_flow=True)

        async def is_beaten_again() -> bool:
            beaten = (await client.get(job.id)).heartbeat_time.ToDatetime(UTC)
            return beaten > frozen_at + timedelta(seconds=3)

        await wait_until(is_beaten_again, seconds=15)
        assert sleeper.cancelled_at is None
        proxy.thaw()
        sleeper.go_on.set()
        assert (await ended(client, job)).attempt == 1


async def test_jobs_that_come_while_the_loop_is_blocked_are_kept(address: str, client: jobwire.Client) -> None:
    worker = jobwire.Worker(address, queues="q", lease_duration=1.0, concurrency=2)
    blocking = threading.Event()

    @worker.handler("block")
    async def blocks(job: jobwire.JobContext) -> None:
        blocking.set()
        time.sleep(2.5)  # noqa: ASYNC251 - the point

    @worker.handler()
    async def note(job: jobwire.JobContext) -> None: ...

    async with working_apart(worker):
        first = await client.create(queue="q", kind="block", ttl=60)
        await wait_until(blocking.is_set)
        second = await client.create(queue="q", ttl=60)
        for job in (first, second):
            done = await ended(client, job)
            assert (done.attempt, done.losses) == (1, 0)


async def test_a_job_that_was_long_on_its_way_does_not_begin_before_it_is_known_to_be_held(
    client: jobwire.Client, proxy: Proxy
) -> None:
    """The connection stands still for longer than one lease, and shorter than the other."""
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

        async def is_lost_for_good() -> bool:
            return (await client.get("short")).losses > 0

        # Longer than keepalives are apart, and not yet so long that the stream is given up.
        await wait_until(is_lost_for_good)
        await wait_until(lambda: time.monotonic() - frozen_at > 3.5)
        proxy.thaw()
        done = await ended(client, short)
        assert (await ended(client, long)).attempt == 1
    assert sorted(begun) == [("long", 1), ("short", done.attempt)]
    assert done.attempt == done.losses + 1 > 1
