from __future__ import annotations

from jobwire.v1 import admin_pb2, job_pb2, store_pb2

from tests.requests import complete, heartbeat, lease_of, update

from .bench import Bench, refusal


async def delete(bench: Bench, job_id: str, etag: str = "") -> bool:
    return (await bench.verbs.delete(store_pb2.DeleteRequest(id=job_id, etag=etag))).existed


async def test_says_whether_there_was_one(bench: Bench) -> None:
    await bench.add("a")
    assert await delete(bench, "a")
    assert not await delete(bench, "a")
    assert not await delete(bench, "never", etag="whatever")
    await bench.add("old", ttl=1)
    bench.clock.advance(1)
    assert not await delete(bench, "old")


async def test_etag_guards(bench: Bench) -> None:
    job = await bench.add("a")
    changed = (await bench.verbs.update(update("a", labels={"x": "1"}))).job
    error = await refusal(delete(bench, "a", job.etag))
    assert error.reason == job_pb2.ERROR_REASON_ETAG_MISMATCH
    assert error.metadata == {"etag": changed.etag}
    assert await delete(bench, "a", changed.etag)


async def test_a_deleted_job_is_not_delivered(bench: Bench) -> None:
    first, second, third = bench.ids("j", 3)
    for job_id in (first, second):
        await bench.add(job_id, "q")
    await bench.add(third, "q", delay=5)
    await delete(bench, first)
    await delete(bench, third)
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=3) == [second]


async def test_a_lease_on_a_deleted_job_is_lost(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q", lease=5)
    await delete(bench, "a")
    error = await refusal(bench.verbs.complete(complete(claimed)))
    assert error.reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
    [result] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert result.state == store_pb2.LEASE_STATE_LOST
    await bench.add("a", "q")
    error = await refusal(bench.verbs.complete(complete(claimed)))
    assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
    bench.clock.advance(5)
    await bench.sweep()
    assert (await bench.job("a")).losses == 0


async def test_nothing_is_left_of_it(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", "q", parent_id="p", key="k", payload=b"p")
    await delete(bench, "p/a")
    assert not await bench.exists("p/a")
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == ["p"]
    assert not (await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p"))).jobs
    assert not (await bench.job("p")).HasField("child_counts")
    assert not (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues
    await bench.add("p/b", "q", parent_id="p", key="k", payload=b"other")


async def test_a_running_job_leaves_its_queue_empty(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    assert lease_of(claimed).id == "a"
    await delete(bench, "a")
    assert not (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues
