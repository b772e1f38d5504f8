from __future__ import annotations

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import CANCELLED, FAILED, RUNNING, SUCCEEDED, complete, fail, ms, seconds, update

from .bench import Bench, refusal


async def cancel(bench: Bench, job_id: str, reason: str = "") -> store_pb2.CancelResponse:
    return await bench.verbs.cancel(store_pb2.CancelRequest(id=job_id, reason=reason))


async def test_a_ready_job_is_cancelled_and_never_delivered(bench: Bench) -> None:
    first = await bench.add("a", "q", ttl=60)
    bench.clock.advance(5)
    answer = await cancel(bench, "a", "not needed")
    job = answer.job
    assert answer.outcome == store_pb2.CANCEL_OUTCOME_CANCELLED
    assert (job.status, job.wait_reason) == (CANCELLED, job_pb2.WAIT_REASON_UNSPECIFIED)
    assert job.cancel == job_pb2.Cancellation(requested=True, reason="not needed")
    assert ms(job.finish_time) == bench.clock.now_ms
    assert ms(job.expire_time) == bench.clock.now_ms + 60_000
    assert job.version == first.version + 1
    assert job.etag != first.etag
    assert await bench.claim("q") == []


async def test_a_scheduled_and_a_backing_off_job_are_cancelled(bench: Bench) -> None:
    await bench.add("a", "q", delay=5)
    await bench.add("b", "q")
    await bench.verbs.fail(fail(await bench.take("q"), delay=5))
    for job_id in ("a", "b"):
        job = (await cancel(bench, job_id)).job
        assert job.status == CANCELLED
        assert not job.HasField("run_time")
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim("q", max_jobs=2) == []


async def test_again_changes_nothing(bench: Bench) -> None:
    await bench.add("a", "q")
    first = await cancel(bench, "a", "first")
    bench.clock.advance(1)
    assert await cancel(bench, "a", "second") == first


@pytest.mark.parametrize("status", [SUCCEEDED, FAILED], ids=["succeeded", "failed"])
async def test_an_ended_job_stays_as_it_is(bench: Bench, status: job_pb2.JobStatus.ValueType) -> None:
    await bench.add("a", "q", max_attempts=1)
    claimed = await bench.take("q")
    if status == SUCCEEDED:
        await bench.verbs.complete(complete(claimed))
    else:
        await bench.verbs.fail(fail(claimed))
    before = await bench.job("a")
    answer = await cancel(bench, "a")
    assert answer.outcome == store_pb2.CANCEL_OUTCOME_ALREADY_ENDED
    assert answer.job.status == status
    assert await bench.job("a") == before


async def test_a_state_only_job_keeps_its_expiry(bench: Bench) -> None:
    await bench.add("a", ttl=60, status=RUNNING)
    bench.clock.advance(5)
    job = (await cancel(bench, "a", "why")).job
    assert (job.status, job.cancel.reason) == (CANCELLED, "why")
    assert ms(job.finish_time) == bench.clock.now_ms
    assert ms(job.expire_time) == bench.clock.now_ms + 55_000
    await bench.verbs.update(update("a", status=SUCCEEDED))
    assert (await cancel(bench, "a")).outcome == store_pb2.CANCEL_OUTCOME_ALREADY_ENDED


async def test_unknown_and_limits(bench: Bench) -> None:
    assert (await refusal(cancel(bench, "never"))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
    await bench.add("a", "q")
    await cancel(bench, "a", "ä\n" * 341)
    error = await refusal(cancel(bench, "a", "x" * 1_025))
    assert list(error.fields) == ["reason"]
    for grace in (-1, 3_601):
        error = await refusal(bench.verbs.cancel(store_pb2.CancelRequest(id="a", grace=seconds(grace))))
        assert list(error.fields) == ["grace"]
