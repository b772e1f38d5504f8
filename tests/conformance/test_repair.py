"""Audit and repair: what a lost record leaves behind goes, and the statistics tell the truth again."""

from __future__ import annotations

import pytest
from jobwire.v1 import admin_pb2, store_pb2

from tests.machine.damage import agrees, repair
from tests.requests import complete

from .bench import Bench

pytestmark = pytest.mark.parametrize("bench", ["store"], indirect=True)


async def stats(bench: Bench, queue: str = "q") -> tuple[int, int, int]:
    request = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(queue=queue))
    found = (await bench.store.get_queue(request)).queue.stats
    return found.ready, found.scheduled, found.running


async def fill(bench: Bench) -> list[str]:
    """Two jobs in each place, in ids of one partition: ready, scheduled, running, ended, state only."""
    ids = bench.ids("j", 10)
    for job_id in ids[4:8]:
        await bench.add(job_id, "q")
    claimed = await bench.claim("q", max_jobs=4)
    assert [job.job.id for job in claimed] == ids[4:8]
    for job in claimed[2:]:
        await bench.verbs.complete(complete(job))
    for job_id in ids[:2]:
        await bench.add(job_id, "q", tenant="t")
    for job_id in ids[2:4]:
        await bench.add(job_id, "q", delay=60)
    for job_id in ids[8:]:
        await bench.add(job_id)
    return ids


async def test_nothing_lost_is_nothing_mended(bench: Bench) -> None:
    await fill(bench)
    assert await agrees(bench.store)
    assert await repair(bench.store) == {}
    assert await stats(bench) == (2, 2, 2)


async def test_lost_records_go_from_every_index_and_count(bench: Bench) -> None:
    ids = await fill(bench)
    await bench.lose(*ids[::2])
    assert (await repair(bench.store))["timer"] == 5
    assert await stats(bench) == (1, 1, 1)
    assert await agrees(bench.store)
    assert await repair(bench.store) == {}
    left = {*(await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids}
    assert left == {*ids[1::2]}


async def test_an_orphaned_child_and_its_parent_stay(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", "q", parent_id="p")
    await bench.add("p/b", "q", parent_id="p")
    await bench.lose("p/a")
    assert (await repair(bench.store))["children"] == 1
    children = await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p"))
    assert [job.id for job in children.jobs] == ["p/b"]
    await bench.lose("p")
    await repair(bench.store)
    assert await bench.exists("p/b")
