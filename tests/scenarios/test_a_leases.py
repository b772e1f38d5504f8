"""Leases: who may finish a job, when it comes back, and when it has come back often enough."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.conformance.bench import Bench, refusal
from tests.requests import (
    FAILED,
    PENDING,
    SCHEDULED,
    SUCCEEDED,
    claim,
    complete,
    create,
    fail,
    heartbeat,
    release,
    seconds,
    update,
)

from .scale import scaled

LOST = job_pb2.ATTEMPT_OUTCOME_LOST


async def lapse(bench: Bench, span: float) -> None:
    """So much time passes, and does what it does."""
    bench.clock.advance(span)
    await bench.sweep()


async def settle_all(bench: Bench, claimed: list[store_pb2.ClaimedJob]) -> None:
    """Completes them all."""
    request = store_pb2.BatchSettleRequest()
    for job in claimed:
        request.settlements.add().complete.CopyFrom(complete(job))
    if claimed:
        results = (await bench.verbs.batch_settle(request)).results
        assert not any(result.HasField("error") for result in results)


@pytest.mark.parametrize("moment", ["before", "at the same time", "after"])
async def test_a01_only_the_holder_of_the_lease_finishes_the_job(bench: Bench, moment: str) -> None:
    """A slow worker and the one that took over both finished the job, for nothing told their claims apart (bull #308,
    bullmq #439 and #3183). Here the token does, whichever of them is first.
    """
    await bench.add("a", "q", lease=3)
    slow = await bench.take("q", worker_id="w1")
    await lapse(bench, 6)
    fast = await bench.take("q", worker_id="w2")
    calls = [bench.verbs.complete(complete(slow, b"A")), bench.verbs.complete(complete(fast, b"B"))]
    if moment == "after":
        calls.reverse()
    if moment == "at the same time":
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    else:
        answers = [(await asyncio.gather(call, return_exceptions=True))[0] for call in calls]
    accepted = [answer for answer in answers if isinstance(answer, store_pb2.CompleteResponse)]
    [refused] = [answer.reason for answer in answers if answer not in accepted]
    assert refused == job_pb2.ERROR_REASON_LEASE_LOST
    assert accepted == [store_pb2.CompleteResponse(durability=store_pb2.DURABILITY_ENGINE)]
    job = await bench.job("a")
    assert (job.status, job.result, job.attempt, job.losses) == (SUCCEEDED, b"B", 2, 1)
    assert [(attempt.worker_id, attempt.outcome) for attempt in job.attempts] == [
        ("w1", LOST),
        ("w2", job_pb2.ATTEMPT_OUTCOME_COMPLETED),
    ]


async def test_a01_a_slow_worker_that_nobody_replaced_is_in_time(bench: Bench) -> None:
    """The other side of bull #308: a lease that ran out but was not reclaimed is still its holder's (rule 6)."""
    bench.needs("own sweeps")
    await bench.add("a", "q", lease=3)
    slow = await bench.take("q")
    bench.clock.advance(6)
    await bench.verbs.complete(complete(slow, b"A"))
    await bench.sweep()
    job = await bench.job("a")
    assert (job.status, job.result, job.attempt, job.losses) == (SUCCEEDED, b"A", 1, 0)


async def test_a03_a_delay_longer_than_the_lease_does_not_multiply_the_job(bench: Bench) -> None:
    """Delayed jobs were given to workers to sit on, so that each lease period handed them out once more (kombu #337,
    celery #2599, #3270, #7009, #4766). Here nobody holds them before their time.
    """
    ids = [f"j{number}" for number in range(200)]
    requests = [create(job_id, "q", delay=10, lease=2) for job_id in ids]
    await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    late = await bench.backend.open("late")  # a server that starts in between changes nothing
    for _ in range(9):
        await lapse(bench, 1)
        for _ in range(5):
            assert await bench.claim("q", max_jobs=50) == []
        assert (await late.claim(claim("q", max_jobs=50))).jobs == []
        assert (await late.reclaim_stale(store_pb2.ReclaimStaleRequest())).reclaimed == []
    job = await bench.job(ids[0])
    assert (job.status, job.wait_reason, job.attempt) == (PENDING, SCHEDULED, 0)
    await lapse(bench, 1)
    delivered = []
    while jobs := [*await bench.claim("q", max_jobs=25), *(await late.claim(claim("q", max_jobs=25))).jobs]:
        assert {job.job.attempt for job in jobs} == {1}
        delivered += [job.job.id for job in jobs]
        await settle_all(bench, jobs)
    await lapse(bench, 60)
    assert await bench.claim("q") == []
    assert sorted(delivered) == sorted(ids)
    await late.close()


async def test_a04_heartbeats_keep_a_long_job_whoever_hears_them(bench: Bench) -> None:
    """A job longer than its lease was started again under a healthy worker: age was counted from the start, not from
    the latest heartbeat (celery #5935, taskiq-redis #101, river #682, xagent #1565). 60 s under a lease of 3 s here,
    with heartbeats through one replica and another.
    """
    await bench.add("a", "q", lease=3)
    claimed = await bench.take("q")
    other = await bench.backend.open("other")
    for second in range(60):
        await lapse(bench, 1)
        verbs = (bench.verbs, other)[second % 2]
        [beat] = (await verbs.heartbeat(heartbeat(claimed))).results
        assert beat.state == store_pb2.LEASE_STATE_HELD
        assert beat.lease_expire_time.ToMilliseconds() == bench.clock.now_ms + 3_000
        assert await bench.claim("q") == []
    await bench.verbs.complete(complete(claimed))
    job = await bench.job("a")
    assert (job.status, job.attempt, job.losses) == (SUCCEEDED, 1, 0)
    await other.close()


async def test_a10_a_poison_pill_is_delivered_as_often_as_its_attempts_allow(bench: Bench) -> None:
    """A job that kills its worker came back for ever, as a crash did not count as an attempt (faktory #99, sidekiq
    #4594, dramatiq PR 383). Here a worker that is never heard of again costs an attempt like one that says Fail.

    The scenario asks for backoff between deliveries; by the design's section 7 a job whose lease ran out is ready at
    once, in its old place.
    """
    good, poison = scaled(400), 20
    requests = [create(f"good{number}", "q", lease=5) for number in range(good)]
    for number in range(poison):
        requests.insert(number * good // poison, create(f"poison{number}", "q", lease=5, max_attempts=3))
    await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    deliveries: dict[str, int] = {}
    for _ in range(4):
        while jobs := await bench.claim("q", max_jobs=100):
            for claimed in jobs:
                deliveries[claimed.job.id] = deliveries.get(claimed.job.id, 0) + 1
            await settle_all(bench, [claimed for claimed in jobs if claimed.job.id.startswith("good")])
        await lapse(bench, 5)
    assert {name: number for name, number in deliveries.items() if number != 1} == {
        f"poison{number}": 3 for number in range(poison)
    }
    assert len(deliveries) == good + poison
    for number in range(poison):
        job = await bench.job(f"poison{number}")
        assert (job.status, job.losses, job.failures, job.attempt) == (FAILED, 3, 0, 3)
        assert job.error.code == "LEASE_EXPIRED"


async def test_a11_losses_and_failures_share_one_budget_in_every_order(bench: Bench) -> None:
    """A lease that ran out sent a job to the dead ones though attempts were left: losses and failures were counted on
    two paths (faktory #409 and PR 94, bullmq #651 and #892). Here any five of them end a job with five attempts, and
    four do not.
    """
    orders = ["".join(order) for order in itertools.product("LF", repeat=5)]
    requests = [create(order, "q", lease=2, max_attempts=5) for order in orders]
    requests.append(create("LFLF", "q", lease=2, max_attempts=5))
    await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    for attempt in range(5):
        jobs = await bench.claim("q", max_jobs=100)
        assert len(jobs) == len(requests), "no job is dead before its limit"
        for claimed in jobs:
            order = claimed.job.id
            if attempt == len(order):
                await bench.verbs.complete(complete(claimed))
            elif order[attempt] == "F":
                answer = await bench.verbs.fail(fail(claimed, f"failure {attempt}"))
                assert answer.status == (FAILED if attempt == 4 else PENDING)
        await lapse(bench, 2)
    assert await bench.claim("q") == []
    for order in orders:
        job = await bench.job(order)
        assert (job.status, job.losses, job.failures) == (FAILED, order.count("L"), order.count("F"))
        expected = ("LEASE_EXPIRED", "the lease ran out without a heartbeat") if order[-1] == "L" else ("", "failure 4")
        assert (job.error.code, job.error.message) == expected
    job = await bench.job("LFLF")
    assert (job.status, job.losses, job.failures, job.attempt) == (SUCCEEDED, 2, 2, 5)


Make = Callable[[Bench], Awaitable[str]]


async def _batch(bench: Bench) -> str:
    request = store_pb2.BatchCreateRequest(requests=[create("j", "q", lease=2, max_attempts=3)])
    return (await bench.verbs.batch_create(request)).results[0].response.job.id


async def _delayed(bench: Bench) -> str:
    await bench.add("j", "q", lease=2, max_attempts=3, delay=5)
    await lapse(bench, 5)
    return "j"


async def _deduplicated(bench: Bench) -> str:
    request = create(queue="q", lease=2, max_attempts=3, key="k")
    first = (await bench.verbs.create(request)).job
    assert not (await bench.verbs.create(request)).created
    return first.id


async def _child(bench: Bench) -> str:
    await bench.add("p")
    return (await bench.add("p/j", "q", parent_id="p", lease=2, max_attempts=3)).id


async def _released(bench: Bench) -> str:
    await bench.add("j", "q", lease=2, max_attempts=3)
    for delay in (None, 1):
        await bench.verbs.release(release(await bench.take("q"), delay=delay))
        await lapse(bench, 1)
    return "j"


async def _changed(bench: Bench) -> str:
    await bench.add("j", "q", lease=2, max_attempts=3)
    await bench.verbs.update(update("j", priority=7, payload=b"new", delay=1.0))
    await lapse(bench, 1)
    return "j"


async def _plain(bench: Bench) -> str:
    return (await bench.add("j", "q", lease=2, max_attempts=3)).id


@pytest.mark.parametrize("make", [_plain, _batch, _delayed, _deduplicated, _child, _released, _changed])
@pytest.mark.parametrize("retried", [False, True], ids=["lost", "retried"])
async def test_a12_no_sort_of_job_escapes_the_limit(bench: Bench, make: Make, retried: bool) -> None:
    """Jobs made by a scheduler were not checked against the limit and stalled for ever (bullmq #4220). Here however a
    job came to be, it ends after as many losses. Redriven and recurring jobs join when those verbs exist.
    """
    job_id = await make(bench)
    if retried:
        await bench.verbs.fail(fail(await bench.take("q"), delay=3))
        await lapse(bench, 3)
    for loss in range(retried, 3):
        assert (await bench.take("q")).job.id == job_id
        await lapse(bench, 2)
        assert (await bench.job(job_id)).losses == loss + 1 - retried
    job = await bench.job(job_id)
    assert (job.status, job.losses, job.failures) == (FAILED, 3 - retried, int(retried))
    assert await bench.claim("q") == []


@pytest.mark.parametrize("bench", ["store"], indirect=True)
async def test_a12_deliveries_that_never_arrive_end_as_well(bench: Bench) -> None:
    """The class of jobs that could loop for ever here (bullmq #4220): a receipt that is missed costs nothing, so
    every third in a row is a loss.
    """
    await bench.add("j", "q", lease=2, max_attempts=3)
    partition = bench.store.partition_of("default", "j")
    for delivery in range(9):
        assert (await bench.job("j")).losses == delivery // 3
        claimed = await bench.store.claim_from(partition, claim("q"), 1, receipt_ms=1_000, waiting=False)
        assert len(claimed.jobs) == 1
        await lapse(bench, 1)
    job = await bench.job("j")
    assert (job.status, job.losses, job.attempt) == (FAILED, 3, 9)
    error = await refusal(bench.verbs.complete(complete(claimed.jobs[0])))
    assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
    assert job.lease_duration == seconds(2)
