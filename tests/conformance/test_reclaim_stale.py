from __future__ import annotations

from google.protobuf import timestamp_pb2
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import FAILED, PENDING, READY, RUNNING, at, complete, heartbeat

from .bench import Bench, refusal


async def reclaim(bench: Bench, before: int | None = None, page_size: int = 0) -> list[str]:
    """All pages."""
    found = []
    token = ""
    while True:
        request = store_pb2.ReclaimStaleRequest(page_size=page_size, page_token=token)
        if before is not None:
            request.heartbeat_before.CopyFrom(at(before))
        answer = await bench.verbs.reclaim_stale(request)
        found += [lease.id for lease in answer.reclaimed]
        assert not any(lease.token for lease in answer.reclaimed)
        token = answer.next_page_token
        if not token:
            return found


async def test_takes_leases_that_ran_out_and_no_other(bench: Bench) -> None:
    bench.needs("own sweeps")
    await bench.add("stale", "q", lease=5)
    await bench.add("fresh", "q", lease=10)
    await bench.claim("q", max_jobs=2)
    bench.clock.advance(5, ms=-1)
    assert await reclaim(bench) == []
    bench.clock.advance(ms=1)
    assert await reclaim(bench) == ["stale"]
    assert await reclaim(bench) == []
    assert (await bench.job("fresh")).status == RUNNING
    assert await bench.claim_ids("q", max_jobs=2) == ["stale"]


async def test_a_reclaimed_job_is_a_loss(bench: Bench) -> None:
    await bench.add("a", "q", lease=5)
    claimed = await bench.take("q", worker_id="w")
    bench.clock.advance(5)
    await reclaim(bench)
    job = await bench.job("a")
    assert (job.status, job.wait_reason, job.losses, job.failures, job.worker_id) == (PENDING, READY, 1, 0, "")
    assert (job.error.code, job.error.message) == ("LEASE_EXPIRED", "the lease ran out without a heartbeat")
    assert job.version == claimed.job.version + 1
    assert job.etag != claimed.job.etag
    [attempt] = job.attempts
    assert (attempt.worker_id, attempt.outcome) == ("w", job_pb2.ATTEMPT_OUTCOME_LOST)


async def test_heartbeat_before_is_strict(bench: Bench) -> None:
    old, fresh = "old", "fresh"
    for job_id in (old, fresh):
        await bench.add(job_id, "q", lease=3_600)
    claimed = {job.job.id: job for job in await bench.claim("q", max_jobs=2)}
    bench.clock.advance(5)
    cutoff = bench.clock.now_ms
    await bench.verbs.heartbeat(heartbeat(claimed[fresh]))
    bench.clock.advance(5)
    assert await reclaim(bench, cutoff - 5_000) == []
    assert await reclaim(bench, cutoff) == [old]
    assert await reclaim(bench, cutoff) == []
    assert await reclaim(bench, cutoff + 1) == [fresh]


async def test_heartbeat_before_leaves_what_ran_out_but_is_fresh_enough(bench: Bench) -> None:
    bench.needs("own sweeps")
    await bench.add("a", "q", lease=1)
    await bench.take("q")
    claimed_at = bench.clock.now_ms
    bench.clock.advance(60)
    assert await reclaim(bench, claimed_at) == []
    assert await reclaim(bench, claimed_at + 1) == ["a"]


async def test_the_last_attempt_lost_ends_the_job(bench: Bench) -> None:
    await bench.add("a", "q", lease=1, max_attempts=1, ttl=60)
    await bench.take("q")
    bench.clock.advance(1)
    await reclaim(bench)
    job = await bench.job("a")
    assert (job.status, job.losses, job.error.code) == (FAILED, 1, "LEASE_EXPIRED")
    assert job.HasField("expire_time")


async def test_pages_look_at_every_lease_once(bench: Bench) -> None:
    for index in range(25):
        await bench.add(f"j{index:02}", "q", lease=60 + index)
    claimed = await bench.claim("q", max_jobs=25)
    bench.clock.advance(1)
    await bench.verbs.heartbeat(heartbeat(*claimed[::2]))
    stale = {job.job.id for job in claimed[1::2]}
    assert set(await reclaim(bench, bench.clock.now_ms, page_size=4)) == stale
    assert await reclaim(bench, bench.clock.now_ms + 1, page_size=1_000) != []


async def test_a_page_looks_at_no_more_than_its_size(bench: Bench) -> None:
    bench.needs("own sweeps")
    for index in range(6):
        await bench.add(f"j{index}", "q", lease=5)
    await bench.claim("q", max_jobs=6)
    bench.clock.advance(5)
    answer = await bench.verbs.reclaim_stale(store_pb2.ReclaimStaleRequest(page_size=4))
    assert len(answer.reclaimed) == 4
    assert answer.next_page_token
    rest = store_pb2.ReclaimStaleRequest(page_size=4, page_token=answer.next_page_token)
    assert len((await bench.verbs.reclaim_stale(rest)).reclaimed) == 2


async def test_a_vanished_job_is_not_put_back(bench: Bench) -> None:
    await bench.add("lost", "q", lease=5)
    await bench.add("live", "q", lease=5)
    claimed = await bench.claim("q", max_jobs=2)
    await bench.lose("lost")
    bench.clock.advance(5)
    assert "lost" not in await reclaim(bench)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=5) == ["live"]
    assert not await bench.exists("lost")
    lost = next(job for job in claimed if job.job.id == "lost")
    assert (await refusal(bench.verbs.complete(complete(lost)))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_settled_jobs_are_left_alone(bench: Bench) -> None:
    await bench.add("a", "q", lease=5)
    await bench.verbs.complete(complete(await bench.take("q")))
    bench.clock.advance(60)
    assert await reclaim(bench) == []
    assert await reclaim(bench, bench.clock.now_ms) == []


async def test_limits(bench: Bench) -> None:
    for request, field in (
        (store_pb2.ReclaimStaleRequest(page_size=1_001), "page_size"),
        (store_pb2.ReclaimStaleRequest(page_size=-1), "page_size"),
        (store_pb2.ReclaimStaleRequest(page_token="made-up"), "page_token"),
        (store_pb2.ReclaimStaleRequest(page_token="WzAsIngiXQ=="), "page_token"),
        (store_pb2.ReclaimStaleRequest(heartbeat_before=timestamp_pb2.Timestamp(seconds=2**50)), "heartbeat_before"),
    ):
        assert list((await refusal(bench.verbs.reclaim_stale(request))).fields) == [field], request
