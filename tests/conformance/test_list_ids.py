from __future__ import annotations

from jobwire.v1 import store_pb2

from tests.requests import complete, create

from .bench import Bench, refusal


async def ids(bench: Bench, namespace: str = "", limit: int = 0) -> list[str]:
    return list((await bench.verbs.list_ids(store_pb2.ListIdsRequest(namespace=namespace, limit=limit))).ids)


async def test_newest_first_then_by_id_descending(bench: Bench) -> None:
    for group in ("ca", "xb"):
        for job_id in group:
            await bench.add(job_id)
        bench.clock.advance(1)
    assert await ids(bench) == ["x", "b", "c", "a"]
    assert await ids(bench, limit=3) == ["x", "b", "c"]


async def test_equal_times_are_ordered_by_the_ids_bytes(bench: Bench) -> None:
    names = ["a", "B", "ä", "\U0001f600", "\uffee", "a/b", "a0"]
    for name in names:
        await bench.add(name)
    assert await ids(bench) == sorted(names, key=str.encode, reverse=True)


async def test_one_namespace_and_at_most_a_hundred_by_default(bench: Bench) -> None:
    await bench.add("elsewhere", namespace="n")
    for index in range(105):
        await bench.add(f"j{index:03}")
    assert len(await ids(bench)) == 100
    assert len(await ids(bench, limit=1_000)) == 105
    assert await ids(bench, "n") == ["elsewhere"]
    assert await ids(bench, "nobody") == []


async def test_deleted_and_expired_jobs_are_left_out(bench: Bench) -> None:
    await bench.add("a")
    await bench.add("b", ttl=5)
    await bench.add("c", "q", ttl=5)
    await bench.add("d", "r")
    await bench.verbs.complete(complete(await bench.take("q")))
    await bench.verbs.delete(store_pb2.DeleteRequest(id="a"))
    bench.clock.advance(5)
    assert await ids(bench) == ["d"]
    await bench.sweep()
    assert await ids(bench) == ["d"]


async def test_any_number_of_expired_and_lost_jobs_may_stand_before(bench: Bench) -> None:
    old = bench.ids("old", 3)
    for job_id in old:
        await bench.add(job_id)
        bench.clock.advance(1)
    over = bench.ids("over", 2_300 if bench.store.partitions == 1 else 20)
    for start in range(0, len(over), 1_000):
        requests = [create(job_id, ttl=5) for job_id in over[start : start + 1_000]]
        await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    await bench.lose(over[-1])
    assert len(await ids(bench, limit=1_000)) == min(len(over) + 2, 1_000)
    bench.clock.advance(5)
    assert await ids(bench, limit=2) == [old[2], old[1]]
    assert await ids(bench, limit=1_000) == [old[2], old[1], old[0]]


async def test_limit_is_checked(bench: Bench) -> None:
    for limit in (-1, 1_001):
        error = await refusal(ids(bench, limit=limit))
        assert list(error.fields) == ["limit"]
