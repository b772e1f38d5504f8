"""Hints to replicas: who is told of what, across several store objects over one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from jobwire.v1 import store_pb2
from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.types import Held, Notice, NoticeKind

from tests.requests import claim, complete, create, fail, lease_of, release, update

from .bench import Bench


class Listener:
    """A replica that reads its notices."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._notices = store.notices()

    async def next(self, timeout: float = 20) -> Notice:
        async with asyncio.timeout(timeout):
            return await anext(self._notices)

    async def close(self) -> None:
        await self._notices.aclose()
        await self.store.close()


@asynccontextmanager
async def listening(bench: Bench, *replicas: str) -> AsyncIterator[list[Listener]]:
    async with AsyncExitStack() as stack:
        listeners = []
        for replica in replicas:
            listener = Listener(await bench.backend.open(replica))
            stack.push_async_callback(listener.close)
            assert (await listener.next()).kind == NoticeKind.RESUMED
            listeners.append(listener)
        yield listeners


def ready(bench: Bench, queue: str = "q") -> Notice:
    return Notice(NoticeKind.READY, bench.store.partition_of("default", bench.ids("j", 1)[0]), "default", queue)


async def test_who_waits_is_told_once_when_a_job_becomes_ready(bench: Bench) -> None:
    bench.needs("inner verbs")
    first, second, third = bench.ids("j", 3)
    async with listening(bench, "one") as [one]:
        assert await one.store.look(0, [("default", "q"), ("default", "r")]) == [False, False]
        await bench.add(first, "q")
        await bench.add(second, "q")
        await bench.add(third, "r")
        assert await one.next() == ready(bench)
        assert await one.next() == ready(bench, "r")
        assert await one.store.look(0, [("default", "q")]) == [True]


async def test_a_notice_may_be_passed_on_while_a_job_is_ready(bench: Bench) -> None:
    bench.needs("inner verbs")
    async with listening(bench, "one", "two") as [one, two]:
        for listener in (one, two):
            await listener.store.look(0, [("default", "q"), ("default", "r")])
            bench.clock.advance(ms=1)
        await bench.add(bench.ids("j", 1)[0], "q")
        assert await one.next() == ready(bench)
        await one.store.pass_on(0, "default", "r")  # holds none, so nobody is told
        await one.store.pass_on(0, "default", "q")
        assert await two.next() == ready(bench)


async def test_no_more_replicas_are_woken_than_there_are_jobs(bench: Bench) -> None:
    bench.needs("inner verbs")
    ids = bench.ids("j", 4)
    async with listening(bench, "one", "two", "three") as listeners:
        for listener in listeners:
            await listener.store.look(0, [("default", "q")])
            bench.clock.advance(ms=1)
        await bench.add(ids[0], "q")
        assert await listeners[0].next() == ready(bench)
        await listeners[1].store.look(0, [("default", "r")])
        await bench.add(ids[3], "r")
        assert await listeners[1].next() == ready(bench, "r")  # and nothing of "q" before
        await bench.verbs.batch_create(
            store_pb2.BatchCreateRequest(requests=[create(job_id, "q") for job_id in ids[1:3]])
        )
        assert await listeners[1].next() == ready(bench)
        assert await listeners[2].next() == ready(bench)


async def test_a_waiter_counts_for_a_while_only(bench: Bench) -> None:
    bench.needs("inner verbs")
    async with listening(bench, "one", "two") as [one, two]:
        await one.store.look(0, [("default", "q")])
        bench.clock.advance(ms=limits.WAITER_EXPIRY_MS)
        await two.store.look(0, [("default", "q")])
        first, second = bench.ids("j", 2)
        await bench.add(first, "q")
        assert await two.next() == ready(bench)
        await one.store.look(0, [("default", "r")])
        await bench.add(second, "r")
        assert await one.next() == ready(bench, "r")  # and nothing of "q" before


async def test_a_claim_that_found_nothing_waits(bench: Bench) -> None:
    bench.needs("inner verbs")
    first, second = bench.ids("j", 2)
    async with listening(bench, "one", "two") as [one, two]:
        nothing = await one.store.claim_from(0, claim("q"), 1, waiting=True)
        assert (nothing.jobs, nothing.more) == ([], False)
        await bench.add(first, "q")
        assert await one.next() == ready(bench)
        await bench.add(second, "q")
        found = await two.store.claim_from(0, claim("q"), 1, waiting=True)
        assert found.more  # so it does not wait, or it would be woken before the other
        bench.clock.advance(ms=1)
        await one.store.claim_from(0, claim("q", "r"), 9, waiting=True)
        await bench.verbs.release(release(found.jobs[0]))
        assert await one.next() == ready(bench)


async def test_whatever_makes_a_job_ready_wakes(bench: Bench) -> None:
    bench.needs("inner verbs")
    [job_id] = bench.ids("j", 1)
    async with listening(bench, "one") as [one]:

        async def woken() -> None:
            assert await one.next() == ready(bench)
            await one.store.claim_from(0, claim("nothing"), 1, waiting=False)

        await one.store.look(0, [("default", "q")])
        await bench.add(job_id, "q", delay=1)
        bench.clock.advance(1)
        await bench.sweep()
        await woken()
        claimed = await bench.take("q", lease=1)
        await one.store.look(0, [("default", "q")])
        bench.clock.advance(1)
        await bench.sweep()
        await woken()
        claimed = await bench.take("q")
        await one.store.look(0, [("default", "q")])
        await bench.verbs.fail(fail(claimed))
        await woken()
        claimed = await bench.take("q")
        await bench.verbs.release(release(claimed, delay=60))
        await one.store.look(0, [("default", "q")])
        await bench.verbs.update(update(job_id, delay=0))
        await woken()


async def test_the_claiming_replica_hears_of_settlements_through_others(bench: Bench) -> None:
    bench.needs("inner verbs")
    ids = bench.ids("j", 2)
    async with listening(bench, "one", "two") as [one, two]:
        for job_id in ids:
            await bench.add(job_id, "q")
        mine, other = (await one.store.claim_from(0, claim("q"), 2, waiting=False)).jobs
        await one.store.complete(complete(mine))
        await two.store.complete(complete(other))
        assert await one.next() == Notice(NoticeKind.SETTLED, 0, "default", other.lease_token)


async def test_held_says_what_became_of_a_token(bench: Bench) -> None:
    bench.needs("inner verbs")
    for index in range(5):
        await bench.add(f"j{index}", "q", lease=5 if index == 4 else 60)
    jobs = {job.job.id: job for job in await bench.claim("q", max_jobs=5)}
    await bench.verbs.complete(complete(jobs["j0"]))
    await bench.verbs.release(release(jobs["j1"]))
    await bench.verbs.delete(store_pb2.DeleteRequest(id="j2"))
    bench.clock.advance(5)
    await bench.sweep()
    leases = [lease_of(jobs[f"j{index}"]) for index in range(5)]
    leases.append(store_pb2.LeaseRef(id="j3", token="made-up"))
    assert await bench.store.held(leases) == [
        Held.SETTLED, Held.SETTLED, Held.LOST, Held.HELD, Held.LOST, Held.LOST
    ]  # fmt: skip
