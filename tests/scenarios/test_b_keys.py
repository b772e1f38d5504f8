"""Dedup keys: as long as they promise, and not a moment longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.conformance.bench import Bench, refusal
from tests.requests import CANCELLED, FAILED, SUCCEEDED, complete, create, fail, seconds

KEY = create(queue="q", key="k", tenant="t", ttl=60, window=100, lease=5, max_attempts=1, queue_timeout=50)
OTHER = create(queue="q", key="k", tenant="t", ttl=60, window=100, payload=b"another request")

End = Callable[[Bench, str], Awaitable[int]]


async def _complete(bench: Bench, _: str) -> int:
    await bench.verbs.complete(complete(await bench.take("q")))
    return SUCCEEDED


async def _fail(bench: Bench, _: str) -> int:
    await bench.verbs.fail(fail(await bench.take("q"), "hopeless", retryable=False))
    return FAILED


async def _die(bench: Bench, _: str) -> int:
    """The worker is never heard of again."""
    await bench.take("q")
    bench.clock.advance(5)
    await bench.sweep()
    return FAILED


async def _expire(bench: Bench, _: str) -> int:
    """Nobody claims it."""
    bench.clock.advance(50)
    await bench.sweep()
    return FAILED


async def _cancel(bench: Bench, job_id: str) -> int:
    await bench.verbs.cancel(store_pb2.CancelRequest(id=job_id))
    return CANCELLED


async def _revoke(bench: Bench, job_id: str) -> int:
    """Cancelled while it runs."""
    await bench.take("q")
    await bench.verbs.cancel(store_pb2.CancelRequest(id=job_id, grace=seconds(0)))
    return CANCELLED


ENDS = pytest.mark.parametrize("end", [_complete, _fail, _die, _expire, _cancel, _revoke])


@ENDS
async def test_b06_a_key_lives_as_long_as_it_promises_however_the_job_ended(bench: Bench, end: End) -> None:
    """A key was given back only on success, or by one path and not another, so that after a failure, a delete or a
    crash the next job was refused until some time limit passed (asynq #275, #629 and #1055, bullmq #4311 and #3765, arq
    #432, #167 and #531).

    Where the scenario asks that the end of a job frees its key, it speaks of scope LIVE, which joins when that scope is
    served. By the design's rule 11 a key of scope WINDOW names its first job until the later of `ttl` after the end and
    `window` after the creation, whatever became of the job, and goes with it.
    """
    created = (await bench.verbs.create(KEY)).job
    status = await end(bench, created.id)
    repeat = await bench.verbs.create(KEY)
    assert (repeat.created, repeat.job.id, repeat.job.status) == (False, created.id, status)
    error = await refusal(bench.verbs.create(OTHER))
    assert (error.reason, error.metadata) == (job_pb2.ERROR_REASON_DEDUP_MISMATCH, {"id": created.id})

    ended = repeat.job.finish_time.ToMilliseconds()
    over = max(ended + 60_000, created.create_time.ToMilliseconds() + 100_000)
    bench.clock.advance(ms=over - bench.clock.now_ms - 1)
    assert (await bench.verbs.create(KEY)).job.id == created.id
    bench.clock.advance(ms=1)
    again = await bench.verbs.create(OTHER)  # at that very moment, and before any sweep of the test's own
    assert again.created
    assert again.job.id != created.id
    assert await bench.claim_ids("q", max_jobs=9) == [again.job.id]


@ENDS
async def test_b06_delete_frees_the_key_at_once(bench: Bench, end: End) -> None:
    """The same reports (asynq #275): after a Delete in any state, the key is anybody's."""
    created = (await bench.verbs.create(KEY)).job
    await end(bench, created.id)
    await bench.verbs.delete(store_pb2.DeleteRequest(id=created.id))
    assert (await bench.verbs.create(OTHER)).created


async def test_b06_a_key_whose_job_was_lost_holds_nobody_up(bench: Bench) -> None:
    """Stray keys after an outage (bullmq #4311): a key whose record is gone belongs to the next who asks for it."""
    created = (await bench.verbs.create(KEY)).job
    await bench.lose(created.id)
    again = await bench.verbs.create(OTHER)
    assert again.created
    assert not (await bench.verbs.create(OTHER)).created
    assert await bench.claim_ids("q", max_jobs=9) == [again.job.id]


@ENDS
async def test_b06_no_key_is_left_without_its_job(bench: Bench, end: End) -> None:
    """The same reports (bullmq #4311), seen in the engine: the sweep that takes the job takes its key, and does not
    leave it to a time limit.
    """
    bench.needs("engine")
    created = (await bench.verbs.create(KEY)).job
    assert "dedup" in await bench.backend.kinds()
    await end(bench, created.id)
    assert "dedup" in await bench.backend.kinds()
    bench.clock.advance(200)
    await bench.sweep()
    assert await bench.backend.kinds() & {"dedup", "job", "ids", "gone"} == set()
