"""Calls about one job at the same instant, through several replicas."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.errors import StoreError

from tests.conformance.bench import Bench
from tests.requests import (
    CANCELLED,
    PENDING,
    SUCCEEDED,
    claim,
    complete,
    create,
    fail,
    heartbeat,
    ms,
    release,
    seconds,
    update,
)
from tests.wait import wait_until

from .fleet import Fleet
from .scale import scaled

REQUESTED = store_pb2.CANCEL_OUTCOME_REQUESTED
DONE = store_pb2.CANCEL_OUTCOME_CANCELLED
ENDED = store_pb2.CANCEL_OUTCOME_ALREADY_ENDED
ASKED = store_pb2.LEASE_STATE_CANCEL_REQUESTED
LEASE_LOST = job_pb2.ERROR_REASON_LEASE_LOST

AT_ONCE = 20
"""Races that run side by side."""


def cancel(job_id: str, grace: float | None = None) -> store_pb2.CancelRequest:
    return store_pb2.CancelRequest(id=job_id, grace=None if grace is None else seconds(grace))


async def race(*calls: Any) -> list[Any]:
    """Both at once, in an order that nobody decides; refusals are answers here."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(not isinstance(answer, Exception) or isinstance(answer, StoreError) for answer in answers), answers
    return answers


class Race:
    """One sort of race with a Cancel, many times; every one must end in the one state that its answers told."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.outcomes = Counter[str]()
        self._order = random.Random(1)

    async def run(self, sort: str, rounds: int) -> None:
        for start in range(0, rounds, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, rounds))
            await asyncio.gather(*(getattr(self, f"_{sort}")(f"{sort}{number}") for number in numbers))

    async def against(self, job_id: str, other: Any, grace: float | None = None) -> tuple[Any, Any]:
        """The answers of the Cancel and of the other call."""
        calls = [self.fleet.next().cancel(cancel(job_id, grace)), other]
        if self._order.random() < 0.5:
            calls.reverse()
        answers = await race(*calls)
        answers.sort(key=lambda answer: not isinstance(answer, store_pb2.CancelResponse))
        return answers[0], answers[1]

    async def ends(self, job_id: str, status: job_pb2.JobStatus.ValueType, **fields: object) -> None:
        """The job has ended like that, and is delivered to nobody."""
        [job] = await self.fleet.jobs([job_id])
        assert job.status == status
        assert {name: getattr(job, name) for name in fields} == fields
        assert (await self.fleet.next().claim(claim(job_id))).jobs == []

    async def _claim(self, name: str) -> None:
        await self.fleet.add(name, name)
        answer, other = await self.against(name, self.fleet.next().claim(claim(name)))
        self.outcomes[store_pb2.CancelOutcome.Name(answer.outcome)] += 1
        if answer.outcome == DONE:
            assert other.jobs == [], "delivered although its Cancel was answered: cancelled"
            await self.ends(name, CANCELLED, attempt=0)
            return
        assert answer.outcome == REQUESTED
        [claimed] = other.jobs
        [beat] = (await self.fleet.next().heartbeat(heartbeat(claimed))).results
        assert beat.state == ASKED
        assert (await self.fleet.next().fail(fail(claimed))).status == CANCELLED
        await self.ends(name, CANCELLED, attempt=1)

    async def _complete(self, name: str) -> None:
        await self.fleet.add(name, name)
        claimed = await self.fleet.take(name)
        answer, other = await self.against(name, self.fleet.next().complete(complete(claimed, b"r")), grace=0)
        self.outcomes[store_pb2.CancelOutcome.Name(answer.outcome)] += 1
        if answer.outcome == DONE:
            assert other.reason == LEASE_LOST
            await self.ends(name, CANCELLED, result=b"")
        else:
            assert (answer.outcome, type(other)) == (ENDED, store_pb2.CompleteResponse)
            await self.ends(name, SUCCEEDED, result=b"r")

    async def _complete_in_grace(self, name: str) -> None:
        """Asked to stop, but not made to: the completion counts, whoever was first."""
        await self.fleet.add(name, name)
        claimed = await self.fleet.take(name)
        answer, other = await self.against(name, self.fleet.next().complete(complete(claimed, b"r")))
        self.outcomes[store_pb2.CancelOutcome.Name(answer.outcome)] += 1
        assert answer.outcome in (REQUESTED, ENDED)
        assert isinstance(other, store_pb2.CompleteResponse)
        await self.ends(name, SUCCEEDED, result=b"r")

    async def _fail(self, name: str) -> None:
        await self.fleet.add(name, name)
        claimed = await self.fleet.take(name)
        grace = self._order.choice([None, 0])
        answer, other = await self.against(name, self.fleet.next().fail(fail(claimed, delay=0)), grace=grace)
        if isinstance(other, store_pb2.FailResponse):
            # Failed first: it waited again, and was cancelled there. Asked first: the failure ended it.
            assert (answer.outcome, other.status) in {(DONE, PENDING), (REQUESTED, CANCELLED)}
            self.outcomes[job_pb2.JobStatus.Name(other.status)] += 1
        else:
            assert (answer.outcome, other.reason) == (DONE, LEASE_LOST)
            self.outcomes["LEASE_LOST"] += 1
        await self.ends(name, CANCELLED, attempt=1)

    async def _release(self, name: str) -> None:
        await self.fleet.add(name, name)
        claimed = await self.fleet.take(name)
        answer, other = await self.against(name, self.fleet.next().release(release(claimed)), grace=0)
        assert answer.outcome == DONE
        assert isinstance(other, store_pb2.ReleaseResponse) or other.reason == LEASE_LOST
        self.outcomes[type(other).__name__] += 1
        await self.ends(name, CANCELLED, attempt=1)

    async def _promotion(self, name: str) -> None:
        """The job comes due and is delivered, or is cancelled before."""
        await self.fleet.add(name, name, delay=0.005)
        deliver = self.fleet.next().claim(claim(name))

        async def come_due() -> store_pb2.ClaimResponse:
            await asyncio.sleep(self._order.uniform(0.003, 0.007))
            store = self.fleet.stores[0]
            await store.sweep(store.partition_of("default", name))
            return await deliver

        async def cancel_late() -> store_pb2.CancelResponse:
            await asyncio.sleep(self._order.uniform(0.004, 0.016))
            return await self.fleet.next().cancel(cancel(name))

        answer, other = await race(cancel_late(), come_due())
        self.outcomes[store_pb2.CancelOutcome.Name(answer.outcome)] += 1
        assert (answer.outcome == REQUESTED) == bool(other.jobs)
        for claimed in other.jobs:
            assert (await self.fleet.next().fail(fail(claimed))).status == CANCELLED
        await self.ends(name, CANCELLED, attempt=len(other.jobs))


@pytest.mark.parametrize("sort", ["claim", "complete", "complete_in_grace", "fail", "release", "promotion"])
async def test_c01_a_cancel_and_another_call_agree_on_one_end(fleet: Fleet, sort: str) -> None:
    """Cancelled jobs were run all the same, or turned back to running, or stayed "cancelling", as the worker's path
    wrote over the flag that the Cancel had left (asynq #420, saq PR 213 and #126, arq #405, docket PR 261, river #78).
    Here whichever call comes first decides, both callers are told what holds, and nothing is delivered afterwards. A
    redrive against a Cancel joins when that verb exists.
    """
    races = Race(fleet)
    await races.run(sort, scaled(100))
    print(dict(races.outcomes))


async def test_c01_a_cancel_and_the_end_of_the_lease_agree(fleet: Fleet) -> None:
    """The same reports (asynq #420 and others): the holder is dead, and the sweep takes its lease as the Cancel comes.
    However they meet, the job is cancelled and never runs again.
    """
    ids = [f"j{number}" for number in range(scaled(100))]
    await fleet.add_all([create(job_id, "q") for job_id in ids])
    claimed: list[store_pb2.ClaimedJob] = []
    while jobs := (await fleet.next().claim(claim("q", max_jobs=10, lease=0.5))).jobs:
        claimed += jobs
    chance = random.Random(2)

    async def cancel_at_expiry(job: job_pb2.Job) -> store_pb2.CancelResponse:
        moment = ms(job.lease_expire_time) / 1_000 + chance.uniform(-0.04, 0.02)
        await asyncio.sleep(max(0.0, moment - time.time()))
        return await fleet.next().cancel(cancel(job.id))

    async with fleet.sweeping(0.01):
        answers = await asyncio.gather(*(cancel_at_expiry(job.job) for job in claimed))

        async def all_cancelled() -> bool:
            return all(job.status == CANCELLED for job in await fleet.jobs(ids))

        await wait_until(all_cancelled)
    assert (await fleet.next().claim(claim("q", max_jobs=1_000))).jobs == []
    assert {answer.outcome for answer in answers} <= {REQUESTED, DONE}
    assert {job.attempt for job in await fleet.jobs(ids)} == {1}
    print(Counter(store_pb2.CancelOutcome.Name(answer.outcome) for answer in answers))


async def test_c01_a_holder_that_will_not_listen_loses_the_job(bench: Bench) -> None:
    """Stuck in "cancelling" under a worker that never confirms (saq PR 213, river #78): heartbeats go on here as if
    nothing had been asked, and the lease is revoked all the same.
    """
    await bench.add("a", "q", lease=10)
    claimed = await bench.take("q")
    await bench.verbs.cancel(cancel("a", 4))
    for _ in range(4):
        [beat] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
        assert beat.state == ASKED
        bench.clock.advance(1)
    await bench.sweep()
    [beat] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert beat.state == store_pb2.LEASE_STATE_LOST
    job = await bench.job("a")
    assert (job.status, job.attempt) == (CANCELLED, 1)
    assert await bench.claim("q") == []


@pytest.mark.parametrize("by", ["id", "key"])
async def test_c03_creates_at_one_instant_make_one_job(fleet: Fleet, by: str) -> None:
    """Two adds at one instant both found nothing and both added (bullmq #1318; hysds PR 225 ended with two records of
    one job). 64 callers here, over three replicas: one creates, all others are told of its job, one delivery.
    """
    rounds, callers = scaled(20 if fleet.name == "memory" or fleet.addresses else 50), 64
    for number in range(rounds):
        queue, name = f"q{number}", f"{by}{number}"
        request = create(name, queue) if by == "id" else create(queue=queue, key=name)
        answers = await race(*(fleet.next().create(request) for _ in range(callers)))
        created = [answer for answer in answers if isinstance(answer, store_pb2.CreateResponse) and answer.created]
        assert len(created) == 1
        job_id = created[0].job.id
        if by == "id":
            refused = [answer for answer in answers if isinstance(answer, StoreError)]
            assert {answer.reason for answer in refused} == {job_pb2.ERROR_REASON_JOB_EXISTS}
            assert [answer.metadata for answer in refused] == [{"id": job_id}] * (callers - 1)
        else:
            assert {answer.job.id for answer in answers} == {job_id}
        delivered = (await fleet.next().claim(claim(queue, max_jobs=callers))).jobs
        assert [claimed.job.id for claimed in delivered] == [job_id]


async def test_c04_each_version_has_one_winner(fleet: Fleet) -> None:
    """Optimistic updates were retried without end inside, or a conflict came out as a crash (redis-py #566, ioredis
    #266, node-resque PR 977). 200 callers here update one record from the version that they all read: one wins, the
    others are told the etag that holds now.
    """
    callers, rounds = 200, scaled(8)
    read = (await fleet.next().create(create("a", labels={"by": "nobody"}))).job
    slowest = 0.0
    for number in range(rounds):

        async def change(caller: int, etag: str) -> store_pb2.UpdateResponse:
            nonlocal slowest
            started = time.monotonic()
            try:
                return await fleet.next().update(update("a", etag=etag, labels={"by": f"{caller}"}))
            finally:
                slowest = max(slowest, time.monotonic() - started)

        answers = await race(*(change(caller, read.etag) for caller in range(callers)))
        [won] = [caller for caller, answer in enumerate(answers) if isinstance(answer, store_pb2.UpdateResponse)]
        [now] = await fleet.jobs(["a"])
        assert (now.version, dict(now.labels)) == (read.version + 1, {"by": f"{won}"})
        losers = [answer for answer in answers if isinstance(answer, StoreError)]
        assert {answer.reason for answer in losers} == {job_pb2.ERROR_REASON_ETAG_MISMATCH}
        assert {answer.metadata["etag"] for answer in losers} == {now.etag}
        read = now
        assert number + 2 == now.version
    print(f"slowest of {rounds * callers} updates: {slowest * 1_000:.0f} ms")


async def test_c04_readers_who_try_again_all_get_through(fleet: Fleet) -> None:
    """The same reports (redis-py #566 and others), as callers live it: read, change, and once more after a conflict.
    No change is lost, and none is made twice.
    """
    callers = scaled(40)
    await fleet.next().create(create("a", payload=b"0"))

    async def add_one() -> None:
        while True:
            [job] = await fleet.jobs(["a"])
            [answer] = await race(
                fleet.next().update(update("a", etag=job.etag, payload=b"%d" % (int(job.payload) + 1)))
            )
            if isinstance(answer, store_pb2.UpdateResponse):
                return
            assert answer.reason == job_pb2.ERROR_REASON_ETAG_MISMATCH

    await asyncio.gather(*(add_one() for _ in range(callers)))
    [job] = await fleet.jobs(["a"])
    assert (job.payload, job.version) == (b"%d" % callers, callers + 1)
