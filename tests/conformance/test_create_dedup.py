"""Create under a dedup key: rule 11."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import HOUR, SUCCEEDED, complete, create

from .bench import Bench, refusal

DAY = 24 * HOUR


async def test_sixteen_concurrent_creates_of_one_key_make_one_job(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.verbs.create(create(queue="q", key="k", tenant="t")) for _ in range(16)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.job.id for answer in answers}) == 1
    assert len(await bench.claim("q", max_jobs=16)) == 1


async def test_repeat_answers_the_first_job_whatever_became_of_it(bench: Bench) -> None:
    request = create(queue="q", key="k")
    first = await bench.verbs.create(request)
    again = await bench.verbs.create(request)
    assert (again.created, again.job) == (False, first.job)
    await bench.verbs.complete(complete(await bench.take("q"), b"done"))
    ended = await bench.verbs.create(request)
    assert (ended.created, ended.job.id, ended.job.status) == (False, first.job.id, SUCCEEDED)
    assert await bench.claim("q") == []


async def test_repeat_with_the_same_request_id_was_created(bench: Bench) -> None:
    request = create(queue="q", key="k", request_id="r")
    first = await bench.verbs.create(request)
    assert (await bench.verbs.create(request)) == first
    assert not (await bench.verbs.create(create(queue="q", key="k", request_id="other"))).created


DIFFERENT: list[dict[str, Any]] = [
    {"payload": b"other"},
    {"kind": "other"},
    {"content_type": "other"},
    {"priority": 1},
    {"queue": "other"},
]


@pytest.mark.parametrize("change", DIFFERENT, ids=lambda change: next(iter(change)))
async def test_another_request_under_the_key_is_refused(bench: Bench, change: dict[str, Any]) -> None:
    first = await bench.add(queue="q", key="k", payload=b"p")
    error = await refusal(bench.verbs.create(create(**{"queue": "q", "key": "k", "payload": b"p", **change})))
    assert error.reason == job_pb2.ERROR_REASON_DEDUP_MISMATCH
    assert error.metadata == {"id": first.id}
    assert len(await bench.claim("q", "other", max_jobs=9)) == 1


async def test_trace_times_and_labels_do_not_make_another_request(bench: Bench) -> None:
    await bench.add(queue="q", key="k")
    trace = job_pb2.TraceContext(traceparent="00-1")
    other = create(queue="q", key="k", labels={"a": "b"}, ttl=5, queue_timeout=9, delay=3, trace_context=trace)
    assert not (await bench.verbs.create(other)).created


async def test_keys_are_per_namespace_and_tenant(bench: Bench) -> None:
    ids = set()
    for namespace in ("n1", "n2"):
        for tenant in ("t1", "t2", ""):
            ids.add((await bench.add(queue="q", key="k", namespace=namespace, tenant=tenant)).id)
    assert len(ids) == 6


async def test_odd_names_never_meet_in_one_key(bench: Bench) -> None:
    pairs = [
        ("a", "b/c"), ("a/b", "c"), ("a:b", "c"), ("a", "b:c"), ("", "a:b:c"), ("a b", "c"), ("a", "b c"),
        ("{a}", "b"), ("{a", "}b"), ("a", "{b}"), ("ä", "b"), ("a", "\u0308b"), ("%", "s"), ("a", "*"), ("", "["),
    ]  # fmt: skip
    ids = {(await bench.add(queue="q", tenant=tenant, key=key)).id for tenant, key in pairs}
    assert len(ids) == len(pairs)
    for tenant, key in pairs:
        again = await bench.verbs.create(create(queue="q", tenant=tenant, key=key))
        assert not again.created
        assert again.job.id in ids


async def test_childs_key_is_per_family(bench: Bench) -> None:
    for root in ("r1", "r2"):
        await bench.add(root, "q")
        await bench.add(f"{root}/a", "q", parent_id=root, key="k")
        again = await bench.verbs.create(create(f"{root}/b", "q", parent_id=root, key="k"))
        assert (again.created, again.job.id) == (False, f"{root}/a")
    await bench.add(f"{root}/a/x", "q", parent_id=f"{root}/a", key="other")
    error = await refusal(bench.verbs.create(create(f"{root}/a/y", "q", parent_id=f"{root}/a", key="k")))
    assert error.reason == job_pb2.ERROR_REASON_DEDUP_MISMATCH  # the parent is part of the request
    assert (await bench.verbs.create(create(queue="q", key="k"))).created


async def test_key_of_a_vanished_job_is_pointed_at_the_new_one(bench: Bench) -> None:
    first = await bench.add(queue="q", key="k")
    await bench.lose(first.id)
    second = await bench.add(queue="q", key="k", payload=b"another request")
    assert second.id != first.id
    again = await bench.verbs.create(create(queue="q", key="k", payload=b"another request"))
    assert (again.created, again.job.id) == (False, second.id)
    assert await bench.claim_ids("q", max_jobs=5) == [second.id]


async def test_delete_frees_the_key(bench: Bench) -> None:
    first = await bench.add(queue="q", key="k")
    await bench.verbs.delete(store_pb2.DeleteRequest(id=first.id))
    assert (await bench.add(queue="q", key="k", payload=b"other")).id != first.id


@pytest.mark.parametrize(
    ("ttl", "window", "lives"),
    [(60, DAY, DAY), (DAY, 60, DAY + 10), (DAY, DAY, DAY + 10)],
    ids=["window is later", "ttl is later", "ttl counts from the end"],
)
async def test_record_and_key_live_to_the_later_of_ttl_and_window(
    bench: Bench, ttl: float, window: float, lives: float
) -> None:
    request = create(queue="q", key="k", ttl=ttl, window=window)
    first = (await bench.verbs.create(request)).job
    bench.clock.advance(10)
    claimed = await bench.take("q")
    await bench.verbs.complete(complete(claimed))
    bench.clock.advance(lives - 10, ms=-1)
    await bench.sweep()
    again = await bench.verbs.create(request)
    assert (again.created, again.job.id) == (False, first.id)
    bench.clock.advance(ms=1)
    fresh = await bench.verbs.create(request)
    assert fresh.created
    assert fresh.job.id != first.id
    await bench.sweep()
    assert not await bench.exists(first.id)
    assert (await bench.verbs.create(request)).job.id == fresh.job.id


async def test_a_live_job_keeps_its_key_beyond_the_window(bench: Bench) -> None:
    request = create(queue="q", key="k", window=5, queue_timeout=DAY)
    first = await bench.verbs.create(request)
    bench.clock.advance(HOUR)
    await bench.sweep()
    again = await bench.verbs.create(request)
    assert (again.created, again.job.id) == (False, first.job.id)


async def test_state_only_job_under_a_key_lives_to_the_later_too(bench: Bench) -> None:
    job = await bench.add(key="k", ttl=5, window=60)
    bench.clock.advance(60, ms=-1)
    assert await bench.exists(job.id)
    bench.clock.advance(ms=1)
    assert not await bench.exists(job.id)


async def test_expired_successor_does_not_lose_the_key_to_its_forerunner(bench: Bench) -> None:
    request = create(key="k", ttl=10, window=10)
    await bench.verbs.create(request)
    bench.clock.advance(10)
    second = (await bench.verbs.create(request)).job
    await bench.sweep()  # removes the first, which must not take the second's key with it
    again = await bench.verbs.create(request)
    assert (again.created, again.job.id) == (False, second.id)
