"""The repair walk over real keys: what was damaged is found and mended, whatever goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest
from jobwire.v1 import admin_pb2, store_pb2
from jobwire_server.store import limits
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore

from tests.clock import Clock
from tests.conformance.backends import lose_from_engine
from tests.engines import Engine
from tests.machine.damage import SORTED_SETS, agrees, keys_of, repair
from tests.machine.snapshot import Snapshot, of_engine
from tests.requests import claim, complete, create, ms, seconds, update
from tests.wait import wait_until


async def fill(store: RedisStore) -> None:
    """Jobs in every place, of several tenants, with children and keys."""
    for number in range(40):
        await store.create(create(f"a{number}", "q", tenant=f"t{number % 7}", priority=number % 3))
        await store.create(create(f"s{number}", "r", delay=600))
    await store.create(create("p"))
    for number in range(5):
        await store.create(create(f"p/{number}", "q", parent_id="p"))
        await store.create(create(queue="r", key=f"k{number}"))
    jobs = (await store.claim(claim("q", max_jobs=12))).jobs
    for job in jobs[:6]:
        await store.complete(complete(job))


async def snapshot(engine: Engine) -> Snapshot:
    async with engine.client() as client:
        return await of_engine(client, 0)


LOST = ["due", "lease", "gone", "ids", "children", "line", "ring", "priorities", "counts", "dedup"]
NOTICED = {"due", "lease", "gone", "line", "ring", "priorities", "counts"}
"""What an audit sees by itself. Ids, children and dedup keys are no business of the counters: a walk mends them too."""


@pytest.mark.parametrize("sort", LOST)
async def test_keys_of_a_sort_that_are_lost_are_made_anew(store: RedisStore, engine: Engine, sort: str) -> None:
    await fill(store)
    before = await snapshot(engine)
    async with engine.client() as client:
        await client.delete(*await keys_of(client, [sort]))
    assert await agrees(store) is (sort not in NOTICED)
    mended = await repair(store)
    assert sum(mended.values()) > 0
    after = await snapshot(engine)
    if sort == "ring":  # virtual times begin anew
        assert {ring: {*tenants} for ring, tenants in after.rings.items()} == {
            ring: {*tenants} for ring, tenants in before.rings.items()
        }
        assert {tag for tenants in after.rings.values() for tag in tenants.values()} == {0.0}
        after = after._replace(rings=before.rings, debts=before.debts)
    assert after == before
    assert await agrees(store)
    assert await repair(store) == {}


@pytest.mark.parametrize("sort", [sort for sort in SORTED_SETS if sort != "debts"])
async def test_entries_that_belong_elsewhere_are_dropped(store: RedisStore, engine: Engine, sort: str) -> None:
    """Of no job, and of a job that stands in another timer, line or list."""
    await fill(store)
    before = await snapshot(engine)
    async with engine.client() as client:
        for key in await keys_of(client, [sort]):
            for stray in (b"ghost", b"default\x1fghost", b"default\x1fa39", b"default\x1fs1", b"s1", b"p", b"77"):
                await client.zadd(key, {stray: 5}, nx=True)
    await repair(store)
    assert await snapshot(engine) == before


async def test_a_lost_dedup_key_still_refuses_a_second_job(store: RedisStore, engine: Engine) -> None:
    first = (await store.create(create(queue="q", key="k", payload=b"p"))).job.id
    async with engine.client() as client:
        await client.delete(*await keys_of(client, ["dedup"]))
    await repair(store)
    again = await store.create(create(queue="q", key="k", payload=b"p"))
    assert (again.created, again.job.id) == (False, first)


async def test_a_lost_counter_of_places_does_not_send_new_jobs_to_the_front(store: RedisStore, engine: Engine) -> None:
    for number in range(5):
        await store.create(create(f"old{number}", "q"))
    async with engine.client() as client:
        await client.delete(*await keys_of(client, ["seq"]))
    assert "seq" in await repair(store)
    await store.create(create("new", "q"))
    jobs = (await store.claim(claim("q", max_jobs=6))).jobs
    assert [job.job.id for job in jobs] == [*(f"old{number}" for number in range(5)), "new"]


async def test_a_record_that_is_no_record_is_removed_and_never_answered(store: RedisStore, engine: Engine) -> None:
    await store.create(create("whole", "q"))
    async with engine.client() as client:
        await client.hset("jobwire:{0}:job:default\x1fblank", "kids", "1")
        await client.hset("jobwire:{0}:job:default\x1fodd", mapping={"route": "x", "state": "R"})
        for job_id in ("blank", "odd"):
            with pytest.raises(StoreError):
                await store.get(store_pb2.GetRequest(id=job_id))
        # One that says something in a form that is not ours may be another release's.
        assert await repair(store) == {"record": 1}
        assert await client.exists("jobwire:{0}:job:default\x1fodd", "jobwire:{0}:job:default\x1fblank") == 1
        await client.delete("jobwire:{0}:job:default\x1fodd")
    assert [name[1] for name in (await snapshot(engine)).records] == ["whole"]


@pytest.mark.parametrize("place", ["ready", "running", "ended"])
async def test_what_meets_a_lost_record_makes_the_audit_notice(
    store: RedisStore, engine: Engine, clock: Clock, place: str
) -> None:
    """The loss alone leaves counters and indexes in agreement: both still speak of it. A record that has ended is
    expected to go by the engine's own expiry when nobody sweeps.
    """
    timed = await RedisStore.connect(engine.url, clock=clock, sweep_interval_ms=0)
    await timed.create(create("a", "q"))
    if place != "ready":
        [job] = (await timed.claim(claim("q"))).jobs
    if place == "ended":
        await timed.complete(complete(job))
    await lose_from_engine(engine, 1, "default", ["a"])
    assert await agrees(timed)
    assert (await timed.claim(claim("q"))).jobs == []
    clock.advance(7_200)
    await timed.sweep(0)
    assert await agrees(timed) is (place == "ended")
    await repair(timed)
    assert await agrees(timed)
    assert (await snapshot(engine)).counts == {}
    await timed.close()


async def test_of_two_walks_at_once_one_walks(store: RedisStore, engine: Engine) -> None:
    await fill(store)
    other = await RedisStore.connect(engine.url, replica="two")
    try:
        first = await store.repair(0)
        assert first.cursor
        assert await other.repair(0) == ("", {})
        cursor = first.cursor
        while cursor:
            cursor, _ = await store.repair(0, cursor)
        assert (await other.repair(0)).cursor
    finally:
        await other.close()


async def test_a_walk_that_was_given_up_changes_nothing_when_it_comes_back(store: RedisStore, engine: Engine) -> None:
    await fill(store)
    before = await snapshot(engine)
    late = (await store.repair(0)).cursor
    async with engine.client() as client:
        assert 0 < await client.pttl("jobwire:{0}:walk") <= limits.WALK_EXPIRY_MS
        await client.delete("jobwire:{0}:walk")  # as if its time had run out
        assert await repair(store) == {}
        assert await store.repair(0, late) == ("", {})
        assert not await keys_of(client, ["walk", "recount"])
    assert await snapshot(engine) == before


async def test_the_count_is_exact_while_everything_goes_on(
    store: RedisStore, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many slices, and calls of every sort between them."""
    monkeypatch.setattr(limits, "REPAIR_SLICE", 10)
    await fill(store)
    chance = random.Random(7)
    walking = asyncio.Event()
    walking.set()
    calls = 0

    async def caller() -> None:
        nonlocal calls
        held: list[store_pb2.ClaimedJob] = []
        while walking.is_set():
            with contextlib.suppress(StoreError):  # of two callers' calls for one job, one is refused
                await step(held)
            calls += 1

    async def step(held: list[store_pb2.ClaimedJob]) -> None:
        match chance.randrange(7):
            case 0 | 1:
                delay = chance.choice([None, 0.001, 60])
                await store.create(create(queue=chance.choice("qr"), tenant=f"t{chance.randrange(5)}", delay=delay))
            case 2:
                held += (await store.claim(claim("q", "r", max_jobs=3))).jobs
            case 3 if held:
                await store.complete(complete(held.pop()))
            case 4 if held:
                job = held.pop()
                lease = store_pb2.LeaseRef(id=job.job.id, token=job.lease_token)
                await store.release(store_pb2.ReleaseRequest(lease=lease, delay=seconds(chance.choice([0, 60]))))
            case 5:
                await store.delete(store_pb2.DeleteRequest(id=await some_id()))
            case 6:
                await store.update(update(await some_id(), priority=chance.randrange(3)))

    async def some_id() -> str:
        return chance.choice((await store.list_ids(store_pb2.ListIdsRequest(limit=50))).ids)

    async with engine.client() as client, asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(caller())
        for _ in range(5):
            await client.hset("jobwire:{0}:counts", "default\x1fq\x1fready", "12345")
            await client.hset("jobwire:{0}:counts", "default\x1fghosts\x1frunning", "7")
            mended = await repair(store)
            assert set(mended) == {"count"}
        walking.clear()

    assert calls > 100
    found = await snapshot(engine)
    assert await agrees(store)
    places = [job for job, _ in found.records.values() if job.queue and not job.HasField("expire_time")]
    for queue in "qr":
        stats = (await store.get_queue(admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(queue=queue)))).queue.stats
        live = [job for job in places if job.queue == queue]
        assert stats.ready + stats.scheduled + stats.running == len(live)
        assert stats.running == sum(bool(job.worker_id or job.HasField("lease_expire_time")) for job in live)
    assert not any("ghosts" in field for field in found.counts)


async def test_a_record_that_the_engine_was_first_to_expire_leaves_nothing(store: RedisStore, engine: Engine) -> None:
    """The backstop, when no server runs for an hour: child and parent go, and with them their indexes."""
    past = int(time.time() * 1_000) - limits.BACKSTOP_ENDED_MS - 500
    early = await RedisStore.connect(engine.url, clock=lambda: past, sweep_interval_ms=0)
    await early.create(create("p", ttl=1))
    await early.create(create("p/a", parent_id="p", ttl=1))
    await early.close()
    async with engine.client() as client:

        async def expired() -> bool:
            return not await keys_of(client, ["job"])

        await wait_until(expired)
        while (await store.sweep(0)).more:
            pass
        assert await engine.kinds() <= {"meta", "seq"}
        assert (await snapshot(engine)).counts == {}


async def test_a_shorter_ttl_that_is_over_at_once_is_answered(store: RedisStore, engine: Engine) -> None:
    """Ended two hours ago, kept for a day, and then for a minute: its time and the engine's backstop are over."""
    past = int(time.time() * 1_000) - 2 * limits.HOUR_MS
    early = await RedisStore.connect(engine.url, clock=lambda: past, sweep_interval_ms=0)
    await early.create(create("a", "q", ttl=86_400))
    [job] = (await early.claim(claim("q"))).jobs
    await early.complete(complete(job))
    await early.close()
    answered = (await store.update(update("a", ttl=60))).job
    assert answered.id == "a"
    assert ms(answered.expire_time) == past + limits.MINUTE_MS
    assert not (await store.exists(store_pb2.ExistsRequest(id="a"))).exists


async def test_a_walk_whose_count_was_lost_does_not_take_it_for_none(store: RedisStore, engine: Engine) -> None:
    await fill(store)
    before = await snapshot(engine)
    cursor = (await store.repair(0)).cursor
    async with engine.client() as client:
        assert await client.pttl("jobwire:{0}:recount") > 0
        await client.delete("jobwire:{0}:recount")
    while cursor:
        cursor, _ = await store.repair(0, cursor)
    assert await snapshot(engine) == before


async def test_a_slice_is_one_script_and_keeps_the_walk_its_own(
    store: RedisStore, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPAIR_SLICE", 5)
    for number in range(300):
        await store.create(create(f"j{number}", "q"))
    slices, cursor, begun = 0, "", False
    async with engine.client() as client:
        while cursor or not begun:
            before = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
            cursor, _ = await store.repair(0, cursor)
            begun = True
            assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] == before + 1
            if cursor:
                assert await client.pttl("jobwire:{0}:walk") > limits.WALK_EXPIRY_MS - 10_000
            slices += 1
    assert slices > 100


@pytest.mark.parametrize("lost", [["counts", "due"], ["counts", "due", "line", "ring", "priorities"], ["ids"]])
async def test_what_no_comparison_shows_is_mended_within_a_day(
    store: RedisStore, engine: Engine, lost: list[str]
) -> None:
    for number in range(5):
        await store.create(create(f"j{number}", "q"))
        await store.create(create(f"s{number}", "q", delay=60))
    assert (await store.audit(0)).stale
    await repair(store)
    assert not (await store.audit(0)).stale
    before = await snapshot(engine)
    async with engine.client() as client:
        assert 0 < await client.pttl("jobwire:{0}:walked") <= limits.DAY_MS
        await client.delete(*await keys_of(client, lost))
        assert await agrees(store)
        await client.delete("jobwire:{0}:walked")  # as if the day were over
    assert (await store.audit(0)).stale
    await repair(store)
    assert await snapshot(engine) == before


@pytest.mark.parametrize("field", ["foo", "default\x1fq\x1fpaused", "default\x1fq\x1fready"])
async def test_counters_that_are_none_of_ours_do_no_harm(store: RedisStore, engine: Engine, field: str) -> None:
    await store.create(create("a", "q"))
    async with engine.client() as client:
        await client.hset("jobwire:{0}:counts", field, "x")
    await agrees(store)
    await store.list_queues(admin_pb2.ListQueuesRequest())
    await repair(store)
    assert await agrees(store)


async def test_more_lines_than_an_audit_adds_up_hide_no_other_queue(
    store: RedisStore, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_LINES", 10)
    for number in range(30):
        await store.create(create(f"a{number}", "crowded", tenant=f"t{number}"))
    async with engine.client() as client:
        before = (await client.info("commandstats"))["cmdstat_zcard"]["calls"]
        assert await agrees(store)
        assert (await client.info("commandstats"))["cmdstat_zcard"]["calls"] - before <= 3 + 10 + 1
