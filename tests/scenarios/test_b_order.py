"""Places in line."""

from __future__ import annotations

import asyncio
import random

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.store import limits

from tests.conformance.bench import Bench
from tests.requests import claim, complete, create, fail, release

from .scale import scaled


async def add_all(bench: Bench, requests: list[store_pb2.CreateRequest]) -> None:
    for start in range(0, len(requests), limits.BATCH):
        batch = store_pb2.BatchCreateRequest(requests=requests[start : start + limits.BATCH])
        for result in (await bench.verbs.batch_create(batch)).results:
            assert result.response.created


async def give_back(bench: Bench, how: str, claimed: store_pb2.ClaimedJob) -> None:
    if how == "release":
        await bench.verbs.release(release(claimed))
    elif how == "fail":
        await bench.verbs.fail(fail(claimed, delay=0))
    else:
        bench.clock.advance(2)
        await bench.sweep()


@pytest.mark.parametrize("how", ["expiry", "release", "fail"])
async def test_b04_a_job_that_comes_back_is_next_in_line(bench: Bench, how: str) -> None:
    """A job that had stalled was pushed back like a new one and lost its place, priority and all (bull #1925, kombu PR
    254, bullmq #1915 and #1929). Here an urgent one is next again, and so is the oldest of many equal ones.
    """
    urgent, *equal = bench.ids("j", scaled(300) + 1)
    await add_all(bench, [create(job_id, "q", priority=1, lease=2) for job_id in equal])
    await add_all(bench, [create(urgent, "q", priority=9, lease=2)])
    await give_back(bench, how, await bench.take("q"))
    claimed = await bench.take("q")
    assert (claimed.job.id, claimed.job.attempt) == (urgent, 2)
    await bench.verbs.complete(complete(claimed))

    back = await bench.claim("q", max_jobs=3)
    assert [claimed.job.id for claimed in back] == equal[:3]
    await give_back(bench, how, back[1])
    if how == "expiry":  # all three ran out
        assert await bench.claim_ids("q", max_jobs=4) == equal[:4]
    else:
        assert await bench.claim_ids("q", max_jobs=2) == [equal[1], equal[3]]


async def shuffled(bench: Bench, count: int) -> list[str]:
    """Adds jobs of five priorities, half of them without one, in random order; answers the order of delivery."""
    chance = random.Random(5)
    ids = bench.ids("j", count)
    priorities = [chance.choice([0, 0, 0, 0, -100, -1, 1, 100]) for _ in ids]
    await add_all(
        bench,
        # What is not given is 0, the default: a job that says 0 and one that says nothing are equals.
        [
            create(job_id, "q", priority=priority) if priority else create(job_id, "q")
            for job_id, priority in zip(ids, priorities, strict=True)
        ],
    )
    return [job_id for _, job_id in sorted(zip([-priority for priority in priorities], ids, strict=True))]


async def test_b05_priorities_hold_exactly(bench: Bench) -> None:
    """Order looked random with thousands of jobs, and a job without a priority was treated unlike one with the default:
    two structures were merged in a fixed order (bullmq #2507 and #2798, bull #1775). One order here, whatever the size.
    """
    expected = await shuffled(bench, scaled(3_000))
    delivered: list[str] = []
    while ids := await bench.claim_ids("q", max_jobs=97):
        delivered += ids
    assert delivered == expected


async def test_b05_claimers_side_by_side_take_the_next_ones(bench: Bench) -> None:
    """The same reports (bullmq #2507), with eight claimers: what they take together at once are the next eight."""
    expected = await shuffled(bench, 160)
    for start in range(0, len(expected), 8):
        taken = await asyncio.gather(*(bench.claim_ids("q") for _ in range(8)))
        assert sorted(job_id for ids in taken for job_id in ids) == sorted(expected[start : start + 8])


async def test_b05_priority_is_strict(bench: Bench) -> None:
    """Whether low priorities starve was nobody's rule (bull #1775). Here it is the documented one, "in a queue the
    higher priority first": under a flood of urgent jobs ten low ones wait, and they are next when it ends.
    """
    low = bench.ids("low", 10)
    await add_all(bench, [create(job_id, "q") for job_id in low])
    for wave in range(scaled(20)):
        urgent = bench.ids(f"urgent{wave}-", 25)
        await add_all(bench, [create(job_id, "q", priority=1) for job_id in urgent])
        taken = (await bench.verbs.claim(claim("q", max_jobs=25))).jobs
        assert [claimed.job.id for claimed in taken] == urgent
    assert await bench.claim_ids("q", max_jobs=20) == low
