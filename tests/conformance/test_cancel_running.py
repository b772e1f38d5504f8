"""Cancel of a running job: its worker is asked, and it never runs again."""

from __future__ import annotations

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import (
    CANCELLED,
    RUNNING,
    SUCCEEDED,
    at,
    complete,
    fail,
    heartbeat,
    ms,
    release,
    seconds,
)

from .bench import Bench, refusal

REQUESTED = store_pb2.CANCEL_OUTCOME_REQUESTED
ASKED = store_pb2.LEASE_STATE_CANCEL_REQUESTED


async def cancel(
    bench: Bench, job_id: str = "a", *, reason: str = "", grace: float | None = None
) -> store_pb2.CancelResponse:
    request = store_pb2.CancelRequest(id=job_id, reason=reason)
    if grace is not None:
        request.grace.CopyFrom(seconds(grace))
    return await bench.verbs.cancel(request)


async def running(bench: Bench, **fields: object) -> store_pb2.ClaimedJob:
    await bench.add("a", "q", **fields)
    return await bench.take("q")


async def test_the_worker_is_asked_and_told_until_when(bench: Bench) -> None:
    claimed = await running(bench, lease=10)
    answer = await cancel(bench, reason="no\nuse", grace=4)
    asked = job_pb2.Cancellation(requested=True, reason="no\nuse", deadline=at(bench.clock.now_ms + 4_000))
    assert (answer.outcome, answer.job.status, answer.job.cancel) == (REQUESTED, RUNNING, asked)
    assert answer.job.version == claimed.job.version + 1
    assert answer.job.etag != claimed.job.etag
    bench.clock.advance(1)
    [beat] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert (beat.state, beat.cancel) == (ASKED, asked)
    # A heartbeat extends the lease up to its revocation, not beyond.
    assert beat.lease_expire_time == asked.deadline


async def test_without_grace_given_the_worker_has_30_s(bench: Bench) -> None:
    await running(bench)
    assert ms((await cancel(bench)).job.cancel.deadline) == bench.clock.now_ms + 30_000


async def test_complete_before_the_revocation_succeeds(bench: Bench) -> None:
    claimed = await running(bench)
    await cancel(bench, grace=4)
    await bench.verbs.complete(complete(claimed, b"done"))
    job = await bench.job("a")
    assert (job.status, job.result, job.cancel.requested) == (SUCCEEDED, b"done", True)


@pytest.mark.parametrize("verb", ["fail", "release", "fail after a delay", "release after a delay"])
async def test_fail_and_release_end_it_as_cancelled(bench: Bench, verb: str) -> None:
    claimed = await running(bench)
    await cancel(bench, grace=4)
    delay = 5 if "delay" in verb else None
    if verb.startswith("fail"):
        answer = await bench.verbs.fail(fail(claimed, delay=delay))
        assert answer.status == CANCELLED
    else:
        await bench.verbs.release(release(claimed, delay=delay))
    job = await bench.job("a")
    assert (job.status, ms(job.finish_time)) == (CANCELLED, bench.clock.now_ms)
    assert await bench.claim("q") == []


async def test_after_grace_the_lease_is_revoked(bench: Bench) -> None:
    bench.needs("own sweeps")
    claimed = await running(bench, lease=10)
    await cancel(bench, grace=4)
    bench.clock.advance(3.999)
    await bench.sweep()
    assert (await bench.job("a")).status == RUNNING
    bench.clock.advance(ms=1)
    await bench.sweep()
    job = await bench.job("a")
    assert (job.status, job.losses, ms(job.finish_time)) == (CANCELLED, 0, bench.clock.now_ms)
    assert [attempt.outcome for attempt in job.attempts] == [job_pb2.ATTEMPT_OUTCOME_CANCELLED]
    error = await refusal(bench.verbs.complete(complete(claimed)))
    assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST


async def test_the_job_of_a_dead_worker_is_cancelled_when_its_lease_runs_out(bench: Bench) -> None:
    bench.needs("own sweeps")
    await running(bench, lease=2)
    await cancel(bench, grace=30)
    bench.clock.advance(2)
    await bench.sweep()
    job = await bench.job("a")
    assert (job.status, job.losses) == (CANCELLED, 1)
    assert [attempt.outcome for attempt in job.attempts] == [job_pb2.ATTEMPT_OUTCOME_LOST]
    assert await bench.claim("q") == []


async def test_no_grace_revokes_at_once(bench: Bench) -> None:
    claimed = await running(bench)
    answer = await cancel(bench, grace=0)
    assert (answer.outcome, answer.job.status) == (store_pb2.CANCEL_OUTCOME_CANCELLED, CANCELLED)
    [beat] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert beat.state == store_pb2.LEASE_STATE_LOST


async def test_asked_again_the_earliest_revocation_and_the_first_reason_count(bench: Bench) -> None:
    await running(bench)
    first = await cancel(bench, reason="first", grace=10)
    assert await cancel(bench, reason="second", grace=20) == first
    third = await cancel(bench, reason="third", grace=5)
    assert (third.outcome, third.job.cancel.reason) == (REQUESTED, "first")
    assert ms(third.job.cancel.deadline) == bench.clock.now_ms + 5_000
