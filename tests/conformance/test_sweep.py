"""What time does, one slice of a partition after the other."""

from __future__ import annotations

from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store import limits

from tests.requests import FAILED, PENDING, READY, RUNNING, complete, create, ms, release, update
from tests.wait import wait_until

from .bench import Bench


async def test_an_unclaimed_job_ends_as_expired(bench: Bench) -> None:
    first = await bench.add("a", "q", queue_timeout=10, ttl=60)
    bench.clock.advance(10, ms=-1)
    await bench.sweep()
    assert (await bench.job("a")).status == PENDING
    bench.clock.advance(ms=1)
    await bench.sweep()
    job = await bench.job("a")
    assert (job.status, job.wait_reason) == (FAILED, job_pb2.WAIT_REASON_UNSPECIFIED)
    assert (job.error.code, job.error.message) == ("EXPIRED", "nobody claimed the job within its queue timeout")
    assert (job.version, job.attempt, job.failures, job.losses) == (first.version + 1, 0, 0, 0)
    assert ms(job.expire_time) == bench.clock.now_ms + 60_000
    assert await bench.claim("q") == []


async def test_queue_timeout_counts_only_while_ready(bench: Bench) -> None:
    await bench.add("a", "q", queue_timeout=10, delay=100)
    bench.clock.advance(100)
    await bench.sweep()
    bench.clock.advance(9)
    await bench.sweep()
    claimed = await bench.take("q", lease=3_600)
    bench.clock.advance(100)
    await bench.sweep()
    assert (await bench.job("a")).status == RUNNING
    await bench.verbs.release(release(claimed, delay=100))
    bench.clock.advance(100)
    await bench.sweep()
    bench.clock.advance(9)
    await bench.sweep()
    assert (await bench.job("a")).wait_reason == READY


async def test_no_live_job_is_ever_removed_by_its_ttl(bench: Bench) -> None:
    await bench.add("ready", "q", ttl=1)
    await bench.add("late", "r", ttl=1, delay=7_200)
    await bench.add("running", "s", ttl=1, lease=3_600)
    await bench.take("s")
    bench.clock.advance(3_599)
    await bench.sweep()
    assert [await bench.exists(job_id) for job_id in ("ready", "late", "running")] == [True, True, True]


async def test_becoming_due_is_a_new_version(bench: Bench) -> None:
    first = await bench.add("a", "q", delay=5)
    bench.clock.advance(5)
    await bench.sweep()
    job = await bench.job("a")
    assert (job.wait_reason, job.version) == (READY, first.version + 1)
    assert job.etag != first.etag
    assert ms(job.update_time) == bench.clock.now_ms


async def test_expired_records_go_with_everything_that_named_them(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", "q", parent_id="p", key="k", ttl=5, window=5)
    await bench.verbs.complete(complete(await bench.take("q")))
    bench.clock.advance(5)
    await bench.sweep()
    assert not await bench.exists("p/a")
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == ["p"]
    assert not (await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p"))).jobs
    assert (await bench.verbs.create(create("p/b", "q", parent_id="p", key="k", payload=b"new"))).created


async def test_says_what_it_did_and_when_to_come_again(bench: Bench) -> None:
    bench.needs("own sweeps")
    due, unclaimed, lost, old, later = bench.ids("j", 5)
    await bench.add(due, "q", delay=10)
    await bench.add(lost, "r", lease=10)
    await bench.take("r")
    await bench.add(unclaimed, "s", queue_timeout=10)
    await bench.add(old, ttl=10)
    await bench.add(later, "q", delay=12)
    early = await bench.store.sweep(0)
    assert (early.promoted, early.expired, early.removed, early.reclaimed, early.more) == (0, 0, 0, [], False)
    assert (early.now_ms, early.next_ms) == (bench.clock.now_ms, bench.clock.now_ms + 10_000)
    bench.clock.advance(10)
    swept = await bench.store.sweep(0)
    assert (swept.promoted, swept.expired, swept.removed) == (1, 1, 1)
    assert swept.reclaimed == [("default", lost)]
    assert (swept.now_ms, swept.next_ms) == (bench.clock.now_ms, bench.clock.now_ms + 2_000)
    again = await bench.store.sweep(0)
    assert (again.promoted, again.expired, again.removed, again.reclaimed) == (0, 0, 0, [])


async def test_nothing_to_come_is_zero(bench: Bench) -> None:
    bench.needs("own sweeps")
    await bench.add("a")
    assert (await bench.store.sweep(bench.store.partition_of("default", "a"))).next_ms == 0


async def test_a_mass_expiry_is_worked_off_in_slices(bench: Bench) -> None:
    bench.needs("own sweeps")
    count = limits.SWEEP_SLICE + 7
    ids = bench.ids("j", count)
    for start in range(0, count, 500):
        requests = [create(job_id, ttl=5) for job_id in ids[start : start + 500]]
        await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    bench.clock.advance(5)
    first, second = await bench.store.sweep(0), await bench.store.sweep(0)
    assert (first.removed, first.more) == (limits.SWEEP_SLICE, True)
    assert (second.removed, second.more) == (7, False)


async def test_entries_of_vanished_records_are_dropped(bench: Bench) -> None:
    bench.needs("own sweeps")
    due, unclaimed, lost, old = bench.ids("j", 4)
    await bench.add(lost, "q", lease=5)
    await bench.take("q")
    await bench.add(due, "q", delay=5)
    await bench.add(unclaimed, "q", queue_timeout=5)
    await bench.add(old, ttl=5)
    for job_id in (due, unclaimed, lost, old):
        await bench.lose(job_id)
    bench.clock.advance(5)
    swept = await bench.store.sweep(0)
    assert (swept.promoted, swept.expired, swept.removed, swept.reclaimed, swept.next_ms) == (0, 0, 0, [], 0)
    assert await bench.claim("q", max_jobs=5) == []
    for job_id in (due, unclaimed, lost, old):
        assert not await bench.exists(job_id)


async def test_a_store_without_a_server_sweeps_as_it_goes(bench: Bench) -> None:
    bench.needs("own sweeps")
    store = await bench.backend.open(sweep_interval_ms=1)
    await bench.add("a", "q", lease=5)
    await bench.take("q")
    bench.clock.advance(5)

    async def is_lost() -> bool:
        job = (await store.get(store_pb2.GetRequest(id="a"))).job
        return (job.status, job.losses) == (PENDING, 1)

    await wait_until(is_lost)  # the interval is one of the real clock
    await store.close()


async def test_when_the_last_job_is_gone_no_key_is_left(bench: Bench) -> None:
    bench.needs("engine")
    await bench.add("p", ttl=60)
    await bench.add("p/a", "q", parent_id="p", key="k", window=1, ttl=1, tenant="t1", payload=b"x")
    await bench.add("p/b", "q", parent_id="p", ttl=1, tenant="t2", priority=4)
    for claimed in await bench.claim("q", max_jobs=9):
        await bench.verbs.complete(complete(claimed))
    for job_id in ("deleted", "cancelled", "moved", "put off", "expiring"):
        await bench.add(job_id, "q", ttl=1, tenant=job_id, queue_timeout=30)
    await bench.verbs.delete(store_pb2.DeleteRequest(id="deleted"))
    await bench.verbs.cancel(store_pb2.CancelRequest(id="cancelled"))
    await bench.verbs.update(update("moved", priority=9))
    await bench.verbs.update(update("put off", delay=5))
    await bench.verbs.cancel(store_pb2.CancelRequest(id="put off"))
    bench.clock.advance(30)
    await bench.sweep()
    bench.clock.advance(30)
    await bench.sweep()
    # Counters of places in line stay; what was claimed, who waits and what a server writes to see that the engine takes
    # writes go by a short TTL.
    assert await bench.backend.kinds() <= {"meta", "seq", "claimed", "waiters", "alive"}


async def test_records_past_their_time_leave_their_queue(bench: Bench) -> None:
    await bench.add("a", "q", queue_timeout=5)
    await bench.verbs.update(update("a", labels={"x": "1"}))
    bench.clock.advance(5)
    await bench.sweep()
    assert not (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues
