"""Records that were taken away behind the store's back: their ids are dropped, never revived as blank jobs."""

from __future__ import annotations

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import RUNNING, complete, create

from .bench import Bench, refusal


async def test_a_live_job_behind_vanished_ones_is_claimed(bench: Bench) -> None:
    lost = bench.ids("a", 3)
    [live] = bench.ids("z", 1)
    for job_id in [*lost, live]:
        await bench.add(job_id, "q", payload=b"p")
    for job_id in lost:
        await bench.lose(job_id)
    claimed = await bench.take("q")
    assert (claimed.job.id, claimed.job.payload, claimed.job.status) == (live, b"p", RUNNING)
    assert await bench.claim("q") == []
    for job_id in lost:
        assert (await refusal(bench.job(job_id))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_a_live_job_of_another_tenant_or_priority_is_claimed_too(bench: Bench) -> None:
    ids = bench.ids("j", 8)
    for index, job_id in enumerate(ids[:6]):
        await bench.add(job_id, "q", tenant=f"t{index % 3}", priority=index // 3)
    await bench.add(ids[6], "q", tenant="zz")
    for job_id in ids[:6]:
        await bench.lose(job_id)
    assert await bench.claim_ids("q") == [ids[6]]
    assert await bench.claim_ids("q") == []


async def test_only_vanished_ids_are_a_clean_nothing(bench: Bench) -> None:
    ids = bench.ids("j", 4)
    for job_id in ids:
        await bench.add(job_id, "q")
        await bench.lose(job_id)
    assert await bench.claim("q", max_jobs=10) == []
    assert await bench.claim("q") == []
    assert not any([await bench.exists(job_id) for job_id in ids])
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == []


@pytest.mark.parametrize("bench", ["store"], indirect=True)
async def test_a_live_job_behind_any_number_of_vanished_ones_is_claimed(bench: Bench) -> None:
    lost = bench.ids("a", 9_000 if bench.store.partitions == 1 else 10)
    for start in range(0, len(lost), 1_000):
        requests = [create(job_id, "q") for job_id in lost[start : start + 1_000]]
        await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    [live] = bench.ids("z", 1)
    await bench.add(live, "q")
    await bench.lose(*lost)
    assert await bench.claim_ids("q") == [live]
    assert await bench.claim_ids("q") == []


async def test_vanished_jobs_are_not_charged_to_their_tenant(bench: Bench) -> None:
    ids = bench.ids("j", 6)
    for job_id in ids[:3]:
        await bench.add(job_id, "q", tenant="a")
    for job_id in ids[3:]:
        await bench.add(job_id, "q", tenant="b")
    await bench.lose(ids[0])
    assert await bench.claim_ids("q", max_jobs=9) == [ids[1], ids[3], ids[2], ids[4], ids[5]]


async def test_an_id_that_vanished_can_be_created_anew(bench: Bench) -> None:
    first, other = bench.ids("j", 2)
    await bench.add(first, "q", delay=5)
    await bench.lose(first)
    await bench.add(first, "r", payload=b"new", queue_timeout=60)
    await bench.add(other, "q")
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=5) == [other]
    claimed = await bench.take("r")
    assert (claimed.job.payload, claimed.job.attempt) == (b"new", 1)


async def test_a_line_does_not_deliver_an_id_that_stands_elsewhere_by_now(bench: Bench) -> None:
    [job_id] = bench.ids("j", 1)
    await bench.add(job_id, "q")
    await bench.lose(job_id)
    await bench.add(job_id, "r")
    assert await bench.claim_ids("q", max_jobs=5) == []
    assert await bench.claim_ids("r", max_jobs=5) == [job_id]


async def test_a_vanished_parent_does_not_stop_its_child(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", "q", parent_id="p")
    await bench.lose("p")
    await bench.verbs.complete(complete(await bench.take("q")))
    assert not await bench.exists("p")
    children = await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p"))
    assert [job.id for job in children.jobs] == ["p/a"]
