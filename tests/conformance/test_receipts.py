"""Receipts: a lease that no heartbeat confirms in time was not delivered."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import FAILED, PENDING, READY, claim, complete, fail, heartbeat, ms, release

from .bench import Bench, refusal

UNDELIVERED, LOST = job_pb2.ATTEMPT_OUTCOME_UNDELIVERED, job_pb2.ATTEMPT_OUTCOME_LOST


async def take(bench: Bench, receipt: float = 1) -> store_pb2.ClaimedJob:
    """The job "a", under a lease of 10 s that wants its receipt sooner. Only a ClaimStream asks for receipts."""
    bench.needs("inner verbs")
    partition = bench.store.partition_of("default", "a")
    claimed = await bench.store.claim_from(
        partition, claim("q", lease=10), 1, receipt_ms=round(receipt * 1_000), waiting=False
    )
    [job] = claimed.jobs
    return job


async def miss(bench: Bench) -> job_pb2.Job:
    await take(bench)
    bench.clock.advance(1)
    await bench.sweep()
    return await bench.job("a")


async def test_until_its_receipt_a_lease_is_short(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    claimed = await take(bench, receipt=1)
    assert ms(claimed.lease_expire_time) == bench.clock.now_ms + 1_000
    assert claimed.lease_duration.seconds == 10
    [beat] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert ms(beat.lease_expire_time) == bench.clock.now_ms + 10_000
    bench.clock.advance(5)
    await bench.sweep()
    await bench.verbs.complete(complete(claimed))


async def test_a_receipt_longer_than_the_lease_changes_nothing(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    assert ms((await take(bench, receipt=20)).lease_expire_time) == bench.clock.now_ms + 10_000


async def test_a_miss_costs_nothing_and_the_job_keeps_its_place(bench: Bench) -> None:
    bench.needs("inner verbs")
    first, second = bench.ids("j", 2)
    await bench.add(first, "q")
    await bench.add(second, "q")
    partition = bench.store.partition_of("default", first)
    await bench.store.claim_from(partition, claim("q"), 1, receipt_ms=1_000, waiting=False)
    bench.clock.advance(1)
    await bench.sweep()
    job = await bench.job(first)
    assert (job.status, job.wait_reason, job.attempt, job.losses, job.failures) == (PENDING, READY, 1, 0, 0)
    assert (job.undelivered, [attempt.outcome for attempt in job.attempts]) == (1, [UNDELIVERED])
    assert not job.HasField("error")
    assert await bench.claim_ids("q", max_jobs=2) == [first, second]


async def test_three_in_a_row_are_a_loss(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q", max_attempts=2)
    states = [((job := await miss(bench)).undelivered, job.losses, job.status) for _ in range(6)]
    assert states == [
        (1, 0, PENDING),
        (2, 0, PENDING),
        (0, 1, PENDING),
        (1, 1, PENDING),
        (2, 1, PENDING),
        (0, 2, FAILED),
    ]
    job = await bench.job("a")
    assert job.error.code == "LEASE_EXPIRED"
    assert [attempt.outcome for attempt in job.attempts] == [UNDELIVERED, UNDELIVERED, LOST] * 2


async def test_a_receipt_in_between_starts_the_count_anew(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    await miss(bench)
    assert (await miss(bench)).undelivered == 2
    claimed = await take(bench)
    await bench.verbs.heartbeat(heartbeat(claimed))
    assert (await bench.job("a")).undelivered == 0
    await bench.verbs.release(release(claimed))
    assert (await miss(bench)).undelivered == 1


async def test_a_failure_without_a_heartbeat_proves_receipt_too(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    await miss(bench)
    await miss(bench)
    await bench.verbs.fail(fail(await take(bench)))
    job = await miss(bench)
    assert (job.undelivered, job.failures, job.losses) == (1, 1, 0)


async def test_a_settlement_needs_no_receipt(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    await bench.verbs.complete(complete(await take(bench)))


async def test_an_undelivered_token_is_stale(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    claimed = await take(bench)
    bench.clock.advance(1)
    await bench.sweep()
    error = await refusal(bench.verbs.complete(complete(claimed)))
    assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
