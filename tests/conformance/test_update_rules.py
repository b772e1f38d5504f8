"""Which fields Update takes, by the sort and status of the job, and what they do to a waiting one."""

from __future__ import annotations

from typing import Any

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import (
    BACKOFF,
    CANCELLED,
    FAILED,
    PENDING,
    READY,
    RUNNING,
    SCHEDULED,
    SUCCEEDED,
    complete,
    fail,
    ms,
    release,
    update,
)

from .bench import Bench, refusal

ALWAYS: list[dict[str, Any]] = [{"labels": {"x": "1"}}, {"ttl": 9}]
WHILE_PENDING: list[dict[str, Any]] = [
    {"payload": b"new"},
    {"content_type": "new"},
    {"priority": 5},
    {"run_at": 1},
    {"delay": 0},
]
STATE_ONLY: list[dict[str, Any]] = [
    {"status": RUNNING},
    {"result": b"r"},
    {"error": job_pb2.JobError(code="c")},
    {"progress": job_pb2.Progress(fraction=1)},
]


async def queued(bench: Bench) -> None:
    await bench.add("a", "q")


async def scheduled(bench: Bench) -> None:
    await bench.add("a", "q", delay=60)


async def backing_off(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), delay=60))


async def running(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.take("q")


async def ended(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.complete(complete(await bench.take("q")))


async def state_only(bench: Bench) -> None:
    await bench.add("a")


RULES: dict[Any, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    queued: (ALWAYS + WHILE_PENDING, STATE_ONLY),
    scheduled: (ALWAYS + WHILE_PENDING, STATE_ONLY),
    backing_off: (ALWAYS + WHILE_PENDING, STATE_ONLY),
    running: (ALWAYS, WHILE_PENDING + STATE_ONLY),
    ended: (ALWAYS, WHILE_PENDING + STATE_ONLY),
    state_only: (ALWAYS + WHILE_PENDING[:2] + STATE_ONLY, WHILE_PENDING[2:]),
}


@pytest.mark.parametrize("begin", RULES, ids=lambda begin: begin.__name__)
async def test_fields_by_the_state_of_the_job(bench: Bench, begin: Any) -> None:
    await begin(bench)
    allowed, forbidden = RULES[begin]
    before = await bench.job("a")
    for change in forbidden:
        for request in (update("a", **change), update("a", **{**change, "labels": {"sneaked": "in"}})):
            error = await refusal(bench.verbs.update(request))
            assert error.reason == job_pb2.ERROR_REASON_ILLEGAL_TRANSITION, change
            assert error.metadata == {"status": job_pb2.JobStatus.Name(before.status)}
    assert await bench.job("a") == before
    for change in allowed:
        version = (await bench.verbs.update(update("a", **change))).job.version
        assert version == before.version + 1, change
        before = await bench.job("a")


async def test_state_only_job_goes_from_any_status_to_any(bench: Bench) -> None:
    statuses = (PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED)
    await bench.add("a")
    for before in statuses:
        for after in statuses:
            await bench.verbs.update(update("a", status=PENDING))
            await bench.verbs.update(update("a", status=before))
            bench.clock.advance(1)
            job = (await bench.verbs.update(update("a", status=after))).job
            assert (job.status, job.wait_reason) == (after, job_pb2.WAIT_REASON_UNSPECIFIED)
            assert job.HasField("finish_time") == (after in statuses[2:])
            if after in statuses[2:]:
                since = 0 if before in statuses[:2] else 1_000
                assert ms(job.finish_time) == bench.clock.now_ms - since
            if after == RUNNING and before != RUNNING:
                assert ms(job.start_time) == bench.clock.now_ms


async def test_priority_moves_a_waiting_job_and_keeps_its_age(bench: Bench) -> None:
    first, second, third = bench.ids("j", 3)
    await bench.add(first, "q")
    await bench.add(second, "q", priority=5)
    await bench.add(third, "q", priority=5)
    await bench.verbs.update(update(first, priority=5))
    assert await bench.claim_ids("q", max_jobs=3) == [first, second, third]


async def test_priority_of_a_scheduled_job_counts_when_its_time_comes(bench: Bench) -> None:
    first, second = bench.ids("j", 2)
    await bench.add(first, "q")
    await bench.add(second, "q", delay=5)
    await bench.verbs.update(update(second, priority=1))
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=2) == [second, first]


async def test_the_new_payload_is_what_the_worker_gets(bench: Bench) -> None:
    await bench.add("a", "q", payload=b"old")
    await bench.verbs.update(update("a", payload=b"new", content_type="text/x"))
    job = (await bench.take("q")).job
    assert (job.payload, job.content_type) == (b"new", "text/x")


async def test_a_ready_job_can_be_put_off(bench: Bench) -> None:
    await bench.add("a", "q")
    job = (await bench.verbs.update(update("a", delay=10))).job
    assert (job.wait_reason, ms(job.run_time)) == (SCHEDULED, bench.clock.now_ms + 10_000)
    assert await bench.claim("q") == []
    bench.clock.advance(10)
    await bench.sweep()
    assert await bench.claim_ids("q") == ["a"]


@pytest.mark.parametrize("change", [{"delay": 0}, {"run_at": 1}], ids=["delay", "run time"])
async def test_a_waiting_job_can_be_made_ready_at_once(bench: Bench, change: dict[str, Any]) -> None:
    await bench.add("a", "q", delay=60)
    job = (await bench.verbs.update(update("a", **change))).job
    assert job.wait_reason == READY
    assert not job.HasField("run_time")
    claimed = await bench.take("q")
    await bench.verbs.release(release(claimed, delay=60))
    assert (await bench.job("a")).wait_reason == BACKOFF
    await bench.verbs.update(update("a", **change))
    assert await bench.claim_ids("q") == ["a"]


async def test_putting_off_twice_counts_once(bench: Bench) -> None:
    await bench.add("a", "q", delay=60)
    await bench.verbs.update(update("a", delay=10, priority=2))
    await bench.verbs.update(update("a", delay=20))
    bench.clock.advance(10)
    await bench.sweep()
    assert await bench.claim("q") == []
    bench.clock.advance(10)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=3) == ["a"]


async def test_a_ready_job_told_to_be_ready_keeps_its_place_and_its_queue_timeout(bench: Bench) -> None:
    first, second = bench.ids("j", 2)
    await bench.add(first, "q", queue_timeout=10)
    await bench.add(second, "q")
    bench.clock.advance(9)
    await bench.verbs.update(update(first, delay=0))
    bench.clock.advance(1)
    await bench.sweep()
    assert (await bench.job(first)).status == FAILED
    assert await bench.claim_ids("q", max_jobs=2) == [second]


async def test_run_time_and_delay_exclude_each_other(bench: Bench) -> None:
    await bench.add("a", "q")
    error = await refusal(bench.verbs.update(update("a", delay=1, run_at=1)))
    assert list(error.fields) == ["delay"]


async def test_illegal_wins_over_too_far_and_etag_over_illegal(bench: Bench) -> None:
    await bench.add("a")
    request = update("a", run_at=bench.clock.now_ms + 10**12)
    assert (await refusal(bench.verbs.update(request))).reason == job_pb2.ERROR_REASON_ILLEGAL_TRANSITION
    stale = store_pb2.UpdateRequest()
    stale.CopyFrom(request)
    stale.etag = "stale"
    assert (await refusal(bench.verbs.update(stale))).reason == job_pb2.ERROR_REASON_ETAG_MISMATCH
