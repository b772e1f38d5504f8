from __future__ import annotations

import asyncio

import pytest
from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store import limits

from tests.requests import (
    CANCELLED,
    FAILED,
    HOUR,
    PENDING,
    READY,
    RUNNING,
    SCHEDULED,
    SUCCEEDED,
    complete,
    create,
    ms,
    seconds,
)

from .bench import Bench, refusal


async def test_queued_job_is_ready_with_every_default_filled_in(bench: Bench) -> None:
    request = create("a", "q", kind="k", tenant="t", labels={"x": "1"}, payload=b"p", content_type="text/plain")
    response = await bench.verbs.create(request)
    assert response.created
    assert response.durability == store_pb2.DURABILITY_ENGINE
    job = response.job
    assert (job.namespace, job.id, job.queue, job.kind, job.tenant) == ("default", "a", "q", "k", "t")
    assert (job.status, job.wait_reason, job.version, job.attempt) == (PENDING, READY, 1, 0)
    assert job.etag
    assert ms(job.create_time) == ms(job.update_time) == bench.clock.now_ms
    assert (job.max_attempts, job.priority) == (5, 0)
    assert job.queue_timeout == seconds(24 * HOUR)
    assert job.retry == job_pb2.RetryPolicy(initial_backoff=seconds(1), max_backoff=seconds(600), multiplier=2)
    for unset in ("expire_time", "run_time", "start_time", "finish_time", "heartbeat_time", "cancel", "child_counts"):
        assert not job.HasField(unset), unset
    assert job.payload == b""
    stored = await bench.job("a")
    assert stored.payload == b"p"
    stored.ClearField("payload")
    assert stored == job


async def test_state_only_job_expires_and_waits_in_no_line(bench: Bench) -> None:
    job = await bench.add("a", ttl=60)
    assert (job.status, job.wait_reason) == (PENDING, job_pb2.WAIT_REASON_UNSPECIFIED)
    assert ms(job.expire_time) == bench.clock.now_ms + 60_000
    assert not job.HasField("queue_timeout")
    assert job.max_attempts == 0
    assert not (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues


@pytest.mark.parametrize("status", [PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED])
async def test_state_only_job_may_begin_in_any_status(bench: Bench, status: job_pb2.JobStatus.ValueType) -> None:
    job = await bench.add("a", status=status)
    assert job.status == status
    assert job.HasField("start_time") == (status == RUNNING)
    assert job.HasField("finish_time") == (status in (SUCCEEDED, FAILED, CANCELLED))


async def test_taken_id_is_refused_and_names_the_id(bench: Bench) -> None:
    first = await bench.add("a", "q", payload=b"first")
    error = await refusal(bench.verbs.create(create("a", "q", payload=b"second")))
    assert error.reason == job_pb2.ERROR_REASON_JOB_EXISTS
    assert error.metadata == {"id": "a"}
    assert (await bench.job("a")).etag == first.etag
    assert len(await bench.claim("q", max_jobs=2)) == 1
    await bench.add("a", "q", namespace="other")


async def test_repeat_by_request_id_is_answered_as_the_first_was(bench: Bench) -> None:
    request = create("a", "q", request_id="r1")
    first = await bench.verbs.create(request)
    again = await bench.verbs.create(request)
    assert again == first
    await bench.verbs.complete(complete(await bench.take("q")))
    late = await bench.verbs.create(request)
    assert late.created
    assert late.job.status == SUCCEEDED
    for other in ("r2", ""):
        error = await refusal(bench.verbs.create(create("a", "q", request_id=other)))
        assert error.reason == job_pb2.ERROR_REASON_JOB_EXISTS


async def test_drawn_ids_differ(bench: Bench) -> None:
    jobs = [await bench.add(queue="q") for _ in range(20)]
    assert len({job.id for job in jobs}) == 20
    claimed = await bench.claim("q", max_jobs=100)
    assert {job.job.id for job in claimed} == {job.id for job in jobs}


async def test_the_request_is_not_changed(bench: Bench) -> None:
    request = create(queue="q", key="k")
    copy = store_pb2.CreateRequest.FromString(request.SerializeToString())
    await bench.verbs.create(request)
    assert request == copy


async def test_delayed_job_waits_to_the_millisecond(bench: Bench) -> None:
    job = await bench.add("a", "q", delay=10)
    assert (job.status, job.wait_reason) == (PENDING, SCHEDULED)
    assert ms(job.run_time) == bench.clock.now_ms + 10_000
    bench.clock.advance(ms=9_999)
    await bench.sweep()
    assert await bench.claim("q") == []
    bench.clock.advance(ms=1)
    await bench.sweep()
    claimed = await bench.take("q")
    assert not claimed.job.HasField("run_time")


async def test_run_time_in_the_past_means_now(bench: Bench) -> None:
    job = await bench.add("a", "q", run_at=bench.clock.now_ms)
    assert job.wait_reason == READY
    assert not job.HasField("run_time")
    assert (await bench.add("b", "q", run_at=0)).wait_reason == READY
    later = await bench.add("c", "q", run_at=bench.clock.now_ms + 1)
    assert later.wait_reason == SCHEDULED


async def test_run_time_is_at_most_a_year_ahead(bench: Bench) -> None:
    await bench.add("a", "q", run_at=bench.clock.now_ms + limits.YEAR_MS)
    await bench.add("b", "q", delay=limits.YEAR_MS / 1_000)
    error = await refusal(bench.verbs.create(create("c", "q", run_at=bench.clock.now_ms + limits.YEAR_MS + 1)))
    assert list(error.fields) == ["job.run_time"]
    assert not await bench.exists("c")


async def test_nobody_sees_a_half_written_job(bench: Bench) -> None:
    labels = {f"l{i}": "v" for i in range(10)}

    async def write() -> None:
        for index in range(30):
            await bench.add(f"j{index}", "q", payload=b"x" * 1_000, labels=labels)

    async def read() -> int:
        seen = 0
        while seen < 30:
            await asyncio.sleep(0)
            request = store_pb2.BatchGetRequest(ids=[f"j{i}" for i in range(30)], view=job_pb2.JOB_VIEW_FULL)
            found = [item.job for item in (await bench.verbs.batch_get(request)).results if item.HasField("job")]
            for job in found:
                assert (len(job.payload), dict(job.labels), job.status) == (1_000, labels, PENDING)
            seen = len(found)
        return seen

    _, seen = await asyncio.gather(write(), read())
    assert seen == 30


async def test_expired_record_leaves_nothing_to_its_successor(bench: Bench) -> None:
    old = await bench.add("a", ttl=10, payload=b"old", labels={"old": "1"}, content_type="old", status=RUNNING)
    bench.clock.advance(10)
    new = await bench.add("a", ttl=60)
    assert new.etag != old.etag
    job = await bench.job("a")
    assert (job.payload, dict(job.labels), job.content_type, job.status) == (b"", {}, "", PENDING)
    assert not job.HasField("start_time")
    await bench.sweep()
    assert await bench.exists("a")


async def test_etag_never_repeats_across_delete_and_create(bench: Bench) -> None:
    etags = set()
    for _ in range(10):
        etags.add((await bench.add("a")).etag)
        await bench.verbs.delete(store_pb2.DeleteRequest(id="a"))
    assert len(etags) == 10


async def test_trace_context_and_policy_reach_the_worker(bench: Bench) -> None:
    trace = job_pb2.TraceContext(traceparent="00-aa-bb-01", tracestate="v=1")
    retry = job_pb2.RetryPolicy(initial_backoff=seconds(2), max_backoff=seconds(3), multiplier=1.5)
    await bench.add("a", "q", trace_context=trace, retry=retry, max_attempts=7, labels={"x": ""})
    job = (await bench.take("q")).job
    assert (job.trace_context, job.retry, job.max_attempts, dict(job.labels)) == (trace, retry, 7, {"x": ""})
