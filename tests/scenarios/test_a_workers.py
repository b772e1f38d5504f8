"""Workers that are cut off, or whose stream alone is, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import jobwire
import pytest
from jobwire import _worker
from jobwire._endpoint import Endpoint
from jobwire._feed import Feed
from jobwire.v1 import job_pb2, store_pb2

from tests.client.working import ended, receipted, status_of, working
from tests.proxy import Proxy
from tests.scenarios.servers import Jobs, address, client, jobs
from tests.server.probe import connected
from tests.wait import wait_until

__all__ = ["address", "client", "jobs"]


@pytest.fixture
async def proxy(address: str) -> AsyncIterator[Proxy]:
    """Before the server."""
    async with Proxy.before(address) as proxy:
        yield proxy


@contextlib.contextmanager
def streams_through(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers made inside send their claim streams through the proxy, and everything else where they are told."""
    with monkeypatch.context() as patch:
        patch.setattr(_worker, "Feed", lambda _endpoint, *rest: Feed(Endpoint(proxy.address), *rest))
        yield


async def test_a15_a_worker_without_answers_lets_go_first_and_hears_that_it_lost(
    client: jobwire.Client, address: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was refused its heartbeats, or got no answer, worked on although its job had been given to another
    (hatchet #2432, faktory_worker_node #163, asynq #612). Here a lost lease is a result of Heartbeat, not an error.
    """
    cancelled_at = 0.0
    leases: list[store_pb2.LeaseRef] = []
    worker = jobwire.Worker(proxy.address, queues="q", lease_duration=3.0, drain_grace=0)

    @worker.handler()
    async def handle(job: jobwire.JobContext) -> str:
        nonlocal cancelled_at
        leases.append(job.lease)
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled_at = time.monotonic()
            raise
        return "the first worker's"

    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await wait_until(lambda: bool(leases))
        await receipted(client, job)
        proxy.freeze()
        [claimed] = await client.claim("q", wait=30, lease_duration=30)
        given_away_at = time.monotonic()
        await wait_until(lambda: cancelled_at > 0)
        assert cancelled_at < given_away_at
        proxy.refusing = True  # so that the worker gets no more jobs
        proxy.thaw()
        async with connected(address) as stub:
            beat = store_pb2.HeartbeatRequest(leases=[store_pb2.LeaseHeartbeat(lease=leases[0])])
            [result] = (await stub.Heartbeat(beat)).results
            assert result.state == store_pb2.LEASE_STATE_LOST
        await client.complete(claimed, "the second's")
    done = await ended(client, job)
    assert (done.result, done.attempt, done.losses) == (b"the second's", 2, 1)
    assert [attempt.outcome for attempt in done.attempts] == [
        job_pb2.ATTEMPT_OUTCOME_LOST,
        job_pb2.ATTEMPT_OUTCOME_COMPLETED,
    ]
    assert len(leases) == 1
    assert "lease lost" in caplog.text


@pytest.mark.parametrize("how", ["reset", "ended with OK", "swallowed"])
async def test_a16_a_dead_stream_is_reopened_and_others_get_the_jobs_meanwhile(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Heartbeats went on while the stream was dead, so a worker looked healthy and got nothing (hatchet #4254, #4824).

    A swallowed stream is given up after two keepalives, 2 s each; jobs sent into it come back for want of a receipt.
    """
    by: dict[str, list[str]] = {"first": [], "second": []}
    async with contextlib.AsyncExitStack() as stack:
        unary = await stack.enter_async_context(jobs.server())
        streams = await stack.enter_async_context(contextlib.AsyncExitStack())
        old = await streams.enter_async_context(jobs.server())
        new = await stack.enter_async_context(jobs.server())
        proxy = await stack.enter_async_context(Proxy.before(old.address))
        client = await stack.enter_async_context(jobwire.connect(unary.address))

        def make(name: str) -> jobwire.Worker:
            worker = jobwire.Worker(unary.address, queues="q", lease_duration=3.0, worker_id=name)

            @worker.handler()
            async def handle(job: jobwire.JobContext) -> None:
                by[name].append(job.job.id)

            return worker

        with streams_through(proxy, monkeypatch):
            await stack.enter_async_context(working(make("first")))
            await ended(client, await client.create(queue="q", ttl=60))
        async with working(make("second")):
            opened, began = proxy.connections, time.monotonic()
            match how:
                case "reset":
                    assert proxy.reset() == 1
                case "ended with OK":
                    proxy.target = new.address
                    await streams.aclose()
                case _:
                    proxy.freeze(new_connections_flow=True)
            created = [await client.create(queue="q", ttl=60) for _ in range(10)]
            for job in created:
                done = await ended(client, job)
                assert (done.failures, done.losses) == (0, 0)
            if how == "swallowed":
                await wait_until(lambda: proxy.connections > opened)
            reopened = time.monotonic() - began
        # Two keepalives, a pause of up to 0.5 s, and the rest for a busy machine.
        assert reopened < 15
        count = len(by["first"])
        await ended(client, await client.create(queue="q", ttl=60))
        assert len(by["first"]) == count + 1


async def test_a17_jobs_of_a_worker_whose_stream_is_away_stay_its_own(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Running jobs were taken from live workers while their streams were being reopened (hatchet #4784)."""
    caplog.set_level("INFO", "jobwire.worker")
    lease = 1.5
    runs: list[str] = []
    go_on = asyncio.Event()
    async with (
        jobs.server() as one,
        jobs.server() as other,
        Proxy.before(one.address) as proxy,
        jobwire.connect(other.address) as client,
    ):

        def make(concurrency: int) -> jobwire.Worker:
            worker = jobwire.Worker(other.address, queues="q", lease_duration=lease, concurrency=concurrency)

            @worker.handler()
            async def handle(job: jobwire.JobContext) -> str:
                runs.append(job.job.id)
                await go_on.wait()
                return f"attempt {job.job.attempt}"

            return worker

        with streams_through(proxy, monkeypatch):
            worker = make(12)  # with room, so that a stream that is open again could be sent what it has
            serving = asyncio.create_task(worker.serve())
            created = [await client.create(queue="q", ttl=60) for _ in range(10)]
            await wait_until(lambda: len(runs) == 10)
        for job in created:
            await receipted(client, job)
        async with working(make(10)):  # who would take them
            proxy.refusing = True
            assert proxy.cut() == 1
            await asyncio.sleep(3 * lease)
            proxy.refusing = False
            epochs = caplog.text.count("claim stream opened")
            await wait_until(lambda: caplog.text.count("claim stream opened") > epochs)
            assert sorted(runs) == sorted(job.id for job in created)
            go_on.set()
            for job in created:
                done = await ended(client, job)
                assert (done.result, done.attempt, done.losses) == (b"attempt 1", 1, 0)
            assert len(runs) == 10
        worker.stop()
        await serving


@pytest.mark.parametrize("delay", [None, 0.3], ids=["ready", "delayed"])
async def test_a21_no_job_waits_behind_a_busy_worker(client: jobwire.Client, delay: float | None) -> None:
    """Jobs were reserved by a busy worker while others idled; delayed ones raised what it could reserve (celery #4537,
    #2788, #3640, #3765).
    """
    busy = await client.create(queue="q", ttl=60)
    async with client.claim_stream("q", max_in_flight=1, lease_duration=60) as stream:
        held: list[store_pb2.ClaimedJob] = []

        async def read() -> None:
            async for message in stream:
                held.extend(message.jobs.jobs)

        reading = asyncio.create_task(read())
        await wait_until(lambda: len(held) == 1)
        idle = jobwire.Worker(client, queues="q", concurrency=1)

        @idle.handler()
        async def handle(job: jobwire.JobContext) -> None: ...

        async with working(idle):
            created = [await client.create(queue="q", ttl=60, delay=delay) for _ in range(20)]
            for job in created:
                await ended(client, job)
        assert [claimed.job.id for claimed in held] == [busy.id]
        await client.complete(held[0])
        reading.cancel()
        await asyncio.wait([reading])


async def test_a21_a_worker_holds_what_it_asked_for_and_no_more(client: jobwire.Client) -> None:
    """The same with more in flight than handlers at once: four are held, one runs, and the rest go to who is idle."""
    go_on = asyncio.Event()
    slow = jobwire.Worker(client, queues="q", concurrency=1, max_in_flight=4)
    quick = jobwire.Worker(client, queues="q", concurrency=1)
    begun: list[str] = []
    by_quick: list[str] = []

    @slow.handler()
    async def wait(job: jobwire.JobContext) -> None:
        begun.append(job.job.id)
        await go_on.wait()

    @quick.handler()
    async def note(job: jobwire.JobContext) -> None:
        by_quick.append(job.job.id)

    async with working(slow):
        created = [await client.create(queue="q", ttl=60) for _ in range(4)]

        async def are_held() -> bool:
            return [await status_of(client, job.id) for job in created] == ["RUNNING"] * 4

        await wait_until(are_held)
        async with working(quick):
            more = [await client.create(queue="q", ttl=60, delay=0.2 * (number % 2)) for number in range(20)]
            for job in more:
                await ended(client, job)
        assert len(begun) == 1
        assert sorted(by_quick) == sorted(job.id for job in more)
        stats = (await client.get_queue("q")).stats
        assert (stats.ready, stats.running) == (0, 4)
        go_on.set()
        for job in created:
            await ended(client, job)
