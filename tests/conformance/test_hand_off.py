"""Create and claim in one step: no rule is bypassed, nobody else is woken."""

from __future__ import annotations

import asyncio

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.types import Claimed

from tests.requests import READY, claim, complete, create

from .bench import Bench
from .test_notices import listening


async def hand_off(
    bench: Bench, request: store_pb2.CreateRequest, *queues: str, max_jobs: int = 1
) -> tuple[store_pb2.CreateResponse | StoreError, Claimed]:
    bench.needs("inner verbs")
    return await bench.store.hand_off(request, claim(*queues), max_jobs)


async def test_the_new_job_is_claimed_if_it_is_next(bench: Bench) -> None:
    outcome, claimed = await hand_off(bench, create("a", "q"), "q")
    assert isinstance(outcome, store_pb2.CreateResponse)
    assert outcome.created
    # What Create answers is the job as it was created.
    assert (outcome.job.wait_reason, outcome.job.version) == (READY, 1)
    [job] = claimed.jobs
    assert (job.job.id, job.job.attempt, claimed.more) == ("a", 1, False)
    await bench.verbs.complete(complete(job))


async def test_what_comes_before_it_is_claimed_instead(bench: Bench) -> None:
    bench.needs("inner verbs")
    first, second, third = bench.ids("j", 3)
    await bench.add(first, "q")
    await bench.add(second, "q", priority=5)
    _, claimed = await hand_off(bench, create(third, "q"), "q", max_jobs=2)
    assert [job.job.id for job in claimed.jobs] == [second, first]
    assert claimed.more


async def test_a_refused_create_still_claims(bench: Bench) -> None:
    bench.needs("inner verbs")
    await bench.add("a", "q")
    outcome, claimed = await hand_off(bench, create("a", "q"), "q")
    assert isinstance(outcome, StoreError)
    assert outcome.reason == job_pb2.ERROR_REASON_JOB_EXISTS
    assert [job.job.id for job in claimed.jobs] == ["a"]


async def test_nobody_is_told_of_a_job_that_was_handed_off(bench: Bench) -> None:
    bench.needs("inner verbs")
    [first] = bench.ids("j", 1)
    async with listening(bench, "one") as [one]:
        await one.store.look(bench.store.partition_of("default", first), [("default", "q")])
        await hand_off(bench, create(first, "q"), "q")
        with pytest.raises(asyncio.TimeoutError):
            await one.next(timeout=0.05)


async def test_a_job_that_is_left_is_told(bench: Bench) -> None:
    bench.needs("inner verbs")
    first, second = bench.ids("j", 2)
    await bench.add(first, "q")
    async with listening(bench, "one") as [one]:
        await one.store.look(bench.store.partition_of("default", first), [("default", "other")])
        _, claimed = await hand_off(bench, create(second, "other"), "q")
        assert [job.job.id for job in claimed.jobs] == [first]
        assert (await one.next()).name == "other"
