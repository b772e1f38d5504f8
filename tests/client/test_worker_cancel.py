"""Cancel of a job that a worker is running, end to end."""

from __future__ import annotations

import asyncio
import threading

import jobwire
import pytest
from jobwire import _feed
from jobwire.v1 import store_pb2

from tests.client.working import ended, working
from tests.wait import wait_until


@pytest.fixture
def worker(client: jobwire.Client) -> jobwire.Worker:
    """A worker of queue q that runs one job and holds two."""
    return jobwire.Worker(client, queues="q", concurrency=1, max_in_flight=2, lease_duration=3)


async def cancel(client: jobwire.Client, job: jobwire.Job, grace: float = 60) -> None:
    answer = await client.cancel(job.id, reason="not needed", grace=grace)
    assert answer.outcome == store_pb2.CANCEL_OUTCOME_REQUESTED


class Coroutine:
    """A handler that is told to stop, and ends as it is bidden."""

    def __init__(self, worker: jobwire.Worker, *, finishes: bool = False) -> None:
        self.begun = asyncio.Event()
        self.saw: list[bool] = []
        self._finishes = finishes
        worker.handler()(self.handle)

    async def handle(self, job: jobwire.JobContext) -> str:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.saw.append(job.cancelled)
            if not self._finishes:
                raise
        return "done all the same"


@pytest.mark.parametrize("pushed", [True, False])
async def test_a_coroutine_is_cancelled(
    client: jobwire.Client, worker: jobwire.Worker, monkeypatch: pytest.MonkeyPatch, pushed: bool
) -> None:
    if not pushed:  # then a heartbeat's answer tells
        take = _feed.Feed._take

        def deaf(feed: _feed.Feed, message: store_pb2.ClaimStreamResponse, doubtful: bool) -> None:
            if not message.HasField("cancel"):
                take(feed, message, doubtful)

        monkeypatch.setattr(_feed.Feed, "_take", deaf)
    handler = Coroutine(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await handler.begun.wait()
        await cancel(client, job)
        now = await ended(client, job, "CANCELLED")
    assert handler.saw == [True]
    assert (now.attempt, now.losses, now.cancel.reason) == (1, 0, "not needed")


async def test_a_coroutine_that_finishes_anyway_succeeds(client: jobwire.Client, worker: jobwire.Worker) -> None:
    handler = Coroutine(worker, finishes=True)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await handler.begun.wait()
        await cancel(client, job)
        assert (await ended(client, job)).result == b"done all the same"


async def test_a_job_that_waits_for_its_turn_never_begins(client: jobwire.Client, worker: jobwire.Worker) -> None:
    handler = Coroutine(worker)
    async with working(worker):
        first = await client.create(queue="q", ttl=60)
        await handler.begun.wait()
        second = await client.create(queue="q", ttl=60)

        async def both_are_held() -> bool:
            return (await client.get_queue("q")).stats.running == 2

        await wait_until(both_are_held)
        for job in (second, first):
            await cancel(client, job)
            await ended(client, job, "CANCELLED")
    assert handler.saw == [True]


@pytest.mark.parametrize("raises", [True, False])
async def test_a_plain_function_is_asked_and_how_it_ends_counts(
    client: jobwire.Client, worker: jobwire.Worker, raises: bool
) -> None:
    begun = threading.Event()

    @worker.handler()
    def handle(job: jobwire.JobContext) -> str:
        begun.set()
        pause = threading.Event()
        while not job.cancelled:
            pause.wait(0.01)
        if raises:
            raise InterruptedError
        return "done all the same"

    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await wait_until(begun.is_set)
        await cancel(client, job)
        now = await ended(client, job, "CANCELLED" if raises else "SUCCEEDED")
    assert now.result == (b"" if raises else b"done all the same")
    assert now.attempt == 1


async def test_a_plain_function_that_does_not_look_loses_its_lease(
    client: jobwire.Client, worker: jobwire.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @worker.handler()
    def handle(job: jobwire.JobContext) -> str:
        begun.set()
        go_on.wait()
        return "too late"

    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await wait_until(begun.is_set)
        await cancel(client, job, grace=0.1)
        now = await ended(client, job, "CANCELLED")
        go_on.set()
        await wait_until(lambda: "lease lost" in caplog.text)
    assert now.result == b""
