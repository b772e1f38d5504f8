"""The worker: handlers, their outcomes, concurrency, drain."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

import jobwire
import pytest
from jobwire.v1 import job_pb2

from tests.client.working import ended, status_of, working
from tests.wait import wait_until

PENDING = jobwire.JobStatus.JOB_STATUS_PENDING


@pytest.fixture
def worker(client: jobwire.Client) -> jobwire.Worker:
    """A worker of queue q that shares the client."""
    return jobwire.Worker(client, queues="q", concurrency=4, drain_grace=30)


async def test_each_kind_has_its_handler(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler("coroutine")
    async def coroutine(job: jobwire.JobContext) -> bytes:
        return job.payload + b"!"

    threads: set[threading.Thread] = set()

    @worker.handler("plain")
    def plain(job: jobwire.JobContext) -> str:
        threads.add(threading.current_thread())
        return "plain " + job.payload.decode()

    attempts: list[int] = []

    @worker.handler()
    async def rest(job: jobwire.JobContext) -> None:
        attempts.append(job.job.attempt)

    async with working(worker):
        jobs = [await client.create(queue="q", kind=kind, payload="p", ttl=60) for kind in ("coroutine", "plain", "x")]
        assert [(await ended(client, job)).result for job in jobs] == [b"p!", b"plain p", b""]
    assert attempts == [1]
    assert threads != {threading.main_thread()}


def test_a_kind_has_one_handler() -> None:
    worker = jobwire.Worker("127.0.0.1:1", queues="q")

    @worker.handler("k")
    def first(job: jobwire.JobContext) -> None: ...

    with pytest.raises(ValueError, match="already"):
        worker.handler("k")(first)


async def test_failures_are_tried_again(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler()
    async def third_time_lucky(job: jobwire.JobContext) -> str:
        if job.job.attempt < 3:
            raise ValueError(f"attempt {job.job.attempt}")
        return job.job.error.message

    async with working(worker):
        job = await ended(client, await client.create(queue="q", ttl=60))
    assert (job.failures, job.result) == (2, b"attempt 2")


async def test_a_failure_tells_what_happened(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler("raise")
    async def broken(job: jobwire.JobContext) -> None:
        raise ZeroDivisionError("by \ud800 zero")

    @worker.handler("exit")
    def leave(job: jobwire.JobContext) -> None:
        sys.exit(3)

    @worker.handler("never")
    async def never(job: jobwire.JobContext) -> None:
        raise jobwire.NonRetryable("bad input", code="BAD_INPUT")

    @worker.handler("dict")
    async def wrong(job: jobwire.JobContext) -> bytes:
        return {}  # type: ignore[return-value]

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Beyond(BaseException):
        pass

    @worker.handler("mute")
    async def mute(job: jobwire.JobContext) -> None:
        raise MuteError

    @worker.handler("beyond")
    def beyond(job: jobwire.JobContext) -> None:
        raise Beyond("beyond Exception")

    @worker.handler("cancelled within")
    async def cancelled(job: jobwire.JobContext) -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    async with working(worker):
        errors = {}
        for kind in ("raise", "exit", "never", "dict", "mute", "beyond", "cancelled within"):
            job = await ended(client, await client.create(queue="q", kind=kind, ttl=60, max_attempts=2), "FAILED")
            assert job.failures == (1 if kind == "never" else 2)
            errors[kind] = job.error
    assert errors["raise"].type == "builtins.ZeroDivisionError"
    assert errors["raise"].message == "by \\ud800 zero"
    assert "in broken" in errors["raise"].stack
    assert errors["exit"].type == "builtins.SystemExit"
    assert errors["never"].code == "BAD_INPUT"
    assert "__str__ failed" in errors["mute"].message
    assert errors["beyond"].message == "beyond Exception"
    assert "dict" in errors["dict"].message
    assert errors["cancelled within"].type == "asyncio.exceptions.CancelledError"


async def test_retry_and_release_wait(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler("retry")
    async def retry(job: jobwire.JobContext) -> None:
        raise jobwire.Retry(60, "later")

    @worker.handler("release")
    async def release(job: jobwire.JobContext) -> None:
        raise jobwire.Release(60)

    async with working(worker):
        for kind in ("retry", "release", "unknown"):
            await client.create(queue="q", kind=kind, ttl=60, job_id=kind)
        jobs = {}
        for kind in ("retry", "release", "unknown"):

            async def is_back(job_id: str = kind) -> bool:
                jobs[job_id] = await client.get(job_id)
                return jobs[job_id].wait_reason == job_pb2.WAIT_REASON_BACKOFF

            await wait_until(is_back)
    assert {kind: (job.failures, job.error.code) for kind, job in jobs.items()} == {
        "retry": (1, "HANDLER_FAILED"),
        "release": (0, ""),
        "unknown": (1, "NO_HANDLER"),
    }


async def test_the_jobs_own_backoff_is_kept(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler()
    async def broken(job: jobwire.JobContext) -> None:
        raise ValueError

    policy = job_pb2.RetryPolicy()
    policy.initial_backoff.seconds = 86_400
    policy.max_backoff.seconds = 86_400
    async with working(worker):
        job = await client.create(queue="q", ttl=60, retry=policy)

        async def waits() -> bool:
            return (await client.get(job.id)).wait_reason == job_pb2.WAIT_REASON_BACKOFF

        await wait_until(waits)


async def test_content_that_is_refused_fails_the_attempt(client: jobwire.Client, worker: jobwire.Worker) -> None:
    @worker.handler()
    async def too_large(job: jobwire.JobContext) -> bytes:
        return bytes(int(job.payload))

    async with working(worker):
        # More than a result may be; more than a message may be.
        for size in ("1900001", "5000000"):
            job = await ended(client, await client.create(queue="q", ttl=60, payload=size, max_attempts=1), "FAILED")
            assert job.error.code == "REFUSED"


async def test_no_more_at_once_than_asked_and_none_held_back(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", concurrency=2)
    running, most = 0, 0
    go_on = asyncio.Event()

    @worker.handler()
    async def count(job: jobwire.JobContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    async with working(worker):
        jobs = [await client.create(queue="q", ttl=60) for _ in range(6)]
        await wait_until(lambda: running == 2)
        stats = (await client.get_queue("q")).stats
        assert (stats.ready, stats.running) == (4, 2)
        go_on.set()
        for job in jobs:
            await ended(client, job)
    assert most == 2


async def test_children_and_progress(client: jobwire.Client, worker: jobwire.Worker) -> None:
    seen = asyncio.Event()

    @worker.handler("parent")
    async def parent(job: jobwire.JobContext) -> None:
        await job.create_child(queue="q", kind="plain", ttl=60, dedup_key="page-1")
        job.progress(0.5, "half " + "n" * 2_000)
        with pytest.raises(ValueError, match="between 0 and 1"):
            job.progress(float("nan"))
        await seen.wait()

    @worker.handler("plain")
    def plain(job: jobwire.JobContext) -> None:
        job.create_child_sync(ttl=60, job_id=f"{job.job.id}/x")

    async with working(worker):
        job = await client.create(queue="q", kind="parent", tenant="t", ttl=60)

        async def progressed() -> bool:
            return (await client.get(job.id)).progress.fraction == 0.5

        await wait_until(progressed)
        seen.set()
        await ended(client, job)
        [child] = [child async for child in client.list_children(job.id)]
        assert child.tenant == "t"
        await ended(client, child)
        assert [grandchild.id async for grandchild in client.list_children(child.id)] == [f"{child.id}/x"]


async def test_drain_lets_running_jobs_end_and_gives_the_rest_back(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", concurrency=1, max_in_flight=3)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @worker.handler()
    async def slow(job: jobwire.JobContext) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    jobs = [await client.create(queue="q", ttl=60) for _ in range(4)]
    async with working(worker) as task:
        await begun.wait()

        async def all_three_are_held() -> bool:
            return (await client.get_queue("q")).stats.running == 3

        await wait_until(all_three_are_held)
        worker.stop()

        async def two_are_back() -> bool:
            stats = (await client.get_queue("q")).stats
            return (stats.ready, stats.running) == (3, 1)

        await wait_until(two_are_back)
        assert not task.done()
        go_on.set()
        await task
    assert (await client.get(jobs[0].id, full=True)).result == b"done"
    for job in jobs[1:]:
        now = await client.get(job.id)
        assert (now.status, now.failures, now.losses) == (PENDING, 0, 0)


async def test_after_the_grace_handlers_are_cancelled_and_jobs_given_back(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", drain_grace=0.2)
    ends: list[bool] = []
    begun = asyncio.Event()

    @worker.handler()
    async def endless(job: jobwire.JobContext) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(job.cancelled)

    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await begun.wait()
    assert ends == [True]
    now = await client.get(job.id)
    assert (now.status, now.attempt, now.failures, now.losses) == (PENDING, 1, 0, 0)


async def test_a_second_stop_ends_the_grace(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", drain_grace=60)
    begun = asyncio.Event()

    @worker.handler()
    async def endless(job: jobwire.JobContext) -> None:
        begun.set()
        await asyncio.sleep(60)

    async with working(worker), asyncio.timeout(30):
        job = await client.create(queue="q", ttl=60)
        await begun.wait()
        worker.stop()
    assert await status_of(client, job.id) == "PENDING"


@pytest.mark.parametrize("draining", [False, True])
async def test_a_cancelled_worker_gives_back_what_it_holds(
    client: jobwire.Client, caplog: pytest.LogCaptureFixture, draining: bool
) -> None:
    caplog.set_level(logging.INFO, "jobwire.worker")
    worker = jobwire.Worker(client, queues="q")
    begun = asyncio.Event()

    @worker.handler()
    async def endless(job: jobwire.JobContext) -> None:
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(worker.serve())
    job = await client.create(queue="q", ttl=60)
    await begun.wait()
    if draining:
        worker.stop()
        await wait_until(lambda: "draining" in caplog.text)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await status_of(client, job.id) == "PENDING"


async def test_a_plain_function_is_asked_to_stop(client: jobwire.Client) -> None:
    worker = jobwire.Worker(client, queues="q", drain_grace=0)
    begun, stopped = threading.Event(), threading.Event()

    @worker.handler()
    def polling(job: jobwire.JobContext) -> None:
        begun.set()
        while not job.cancelled:
            time.sleep(0.01)
        stopped.set()

    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await wait_until(begun.is_set)
    await wait_until(stopped.is_set)
    assert await status_of(client, job.id) == "PENDING"


async def test_a_claim_that_can_never_work_ends_the_worker(client: jobwire.Client) -> None:
    with pytest.raises(jobwire.InvalidArgument):
        await jobwire.Worker(client, queues="q" * 200).serve()


async def test_a_worker_of_its_own_client(address: str, client: jobwire.Client) -> None:
    worker = jobwire.Worker(address, queues="q")

    @worker.handler()
    async def done(job: jobwire.JobContext) -> None: ...

    async with working(worker):
        await ended(client, await client.create(queue="q", ttl=60))


async def test_logs_hold_no_payload(
    client: jobwire.Client, worker: jobwire.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    @worker.handler()
    async def broken(job: jobwire.JobContext) -> None:
        raise ValueError("secret message")

    with caplog.at_level(logging.DEBUG, "jobwire.worker"):
        async with working(worker):
            job = await client.create(queue="q", ttl=60, payload="secret payload", max_attempts=1)
            await ended(client, job, "FAILED")
    text = "\n".join(record.getMessage() for record in caplog.records if record.name == "jobwire.worker")
    assert "failed: job=default/" in text
    assert "secret" not in text
