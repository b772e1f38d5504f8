"""The engine is full, and refuses what would make it fuller; or it drops keys of ours to make room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import structlog
from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore

from tests.conformance.bench import refusal
from tests.engines import Engine
from tests.requests import RUNNING, claim, complete, create, fail, heartbeat, lease_of, release, update
from tests.scenarios.engine_links import called, served, stored
from tests.scenarios.lives import life
from tests.wait import wait_until

FULL = job_pb2.ERROR_REASON_ENGINE_FULL

Limit = Callable[[int], Awaitable[None]]


@pytest.fixture
async def room(engine: Engine) -> AsyncIterator[Limit]:
    """Lets the engine take so many bytes more than it has, 0 for as many as it likes. Empty at first, endless after."""
    await engine.flush()
    async with engine.client() as client:
        policy = str((await client.config_get("maxmemory-policy"))["maxmemory-policy"])

        async def limit(more: int) -> None:
            used = int((await client.info("memory"))["used_memory"])
            await client.config_set("maxmemory", used + more if more else 0)

        yield limit
        await client.config_set("maxmemory", 0)
        await client.config_set("maxmemory-policy", policy)
    await engine.flush()


async def test_d09_a_full_engine_takes_no_job_and_finishes_those_it_has(engine: Engine, room: Limit) -> None:
    """Scripts that free memory were refused like those that need it, so nothing could ever end (bull #433); and whoever
    was restarted meanwhile died at its start (durabull #64).
    """
    async with served(engine.url) as (address, _), called(address) as [verbs]:
        created: set[str] = set()
        refused: set[str] = set()
        answers: set[tuple[int, int]] = set()
        held: list[store_pb2.ClaimedJob] = []
        for number in range(8):
            await verbs.create(create(f"old-{number}", "old"))
            held += (await verbs.claim(claim("old", lease=300))).jobs
        stop = asyncio.Event()

        async def create_on(lane: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                name = f"{lane}-{number}"
                try:
                    await verbs.create(create(name, "new", payload=random.randbytes(20_000)))
                    created.add(name)
                except StoreError as error:
                    refused.add(name)
                    answers.add((error.reason, error.retry_after_ms))
                    await asyncio.sleep(error.retry_after_ms / 10_000)

        async with asyncio.TaskGroup() as group:
            await room(3_000_000)
            for lane in range(10):
                group.create_task(create_on(lane))
            await wait_until(lambda: len(refused) >= 30)

            # Nothing of what follows waits for room.
            [beat] = (await verbs.heartbeat(heartbeat(held[0]))).results
            assert beat.state == store_pb2.LEASE_STATE_HELD
            await verbs.complete(complete(held[0], b"done"))
            await verbs.fail(fail(held[1], delay=0))
            await verbs.release(release(held[2]))
            await verbs.cancel(store_pb2.CancelRequest(id="old-3"))
            request = store_pb2.BatchSettleRequest()
            request.settlements.add().complete.lease.CopyFrom(lease_of(held[4]))
            [result] = (await verbs.batch_settle(request)).results
            assert result.HasField("complete")
            await verbs.cancel(store_pb2.CancelRequest(id=held[2].job.id))
            await verbs.delete(store_pb2.DeleteRequest(id=held[2].job.id))

            # A replica that starts now finds its way too.
            async with served(engine.url) as (other, _), called(other) as [theirs]:
                await theirs.complete(complete(held[5]))
                error = await refusal(theirs.create(create("x", "new", payload=bytes(3_000_000 // 2))))
                assert error.reason == FULL

            await room(0)
            before = len(created)
            await wait_until(lambda: len(created) >= before + 10)
            stop.set()
        assert answers == {(FULL, 1_000)}

        # All or nothing: whoever was refused left no trace, not even in a count.
        names = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(queue="new"))
        assert (await verbs.get_queue(names)).queue.stats.ready == len(created)
        taken: set[str] = set()
        while jobs := (await verbs.claim(claim("new", max_jobs=500))).jobs:
            taken |= {claimed.job.id for claimed in jobs}
        assert taken == created
        for name in list(refused)[:20]:
            assert not (await verbs.exists(store_pb2.ExistsRequest(id=name))).exists
        assert await life(verbs, "later")


async def test_d09_a_store_opens_on_a_full_engine(engine: Engine, room: Limit) -> None:
    """The start itself wrote, and took the refusal for fatal (durabull #64). One that finds an engine not set up yet
    waits as for an engine that is away, and says why.
    """
    async with stored(engine.url) as store, engine.client() as client:
        await store.create(create("a", "q"))
        await client.config_set("maxmemory", 1)
        async with stored(engine.url) as second:
            [claimed] = (await second.claim(claim("q"))).jobs
            await second.complete(complete(claimed))
        error = await refusal(RedisStore.connect(engine.url, prefix="other"))
        assert error.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
        assert "out of memory" in error.message


@pytest.mark.parametrize("policy", ["allkeys-random", "volatile-random", "allkeys-lru"])
async def test_d10_after_evictions_every_call_has_an_ordinary_answer(engine: Engine, room: Limit, policy: str) -> None:
    """On an engine shared with a cache, jobs, locks and indexes vanished one by one, and what was left met states that
    its code thought impossible (sidekiq #2883, bullmq #1046).
    """
    jobs = 300
    async with stored(engine.url, partitions=2) as store, engine.client() as client:
        for number in range(jobs):
            name, key = ("", f"key-{number}") if number % 5 == 0 else (f"job-{number}", "")
            tenant = f"t{number % 7}"
            await store.create(create(name, "q", key=key, tenant=tenant, priority=number % 3, payload=bytes(1_000)))
        held = list((await store.claim(claim("q", max_jobs=60, lease=300))).jobs)
        await store.create(create("held", "mine"))
        ids = [f"job-{number}" for number in range(jobs)]

        keys = await client.dbsize()
        await client.config_set("maxmemory-policy", policy)
        used = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory", used - 250_000)
        await client.set("filler", 1)  # makes room first, for which it evicts
        await client.config_set("maxmemory", 0)
        await client.delete("filler")
        assert await client.dbsize() < keys - 20

        # Of a deployment, one replica runs; another one starts below.
        await store.ping()
        survivors = {job.job.id for job in held if (await store.exists(store_pb2.ExistsRequest(id=job.job.id))).exists}
        with structlog.testing.capture_logs() as logs:
            async with served(engine.url) as (address, _), called(address) as [verbs]:
                refusals: set[int] = set()

                async def tried(call: Awaitable[object]) -> None:
                    try:
                        await call
                    except StoreError as error:
                        refusals.add(error.reason)

                beats = (await verbs.heartbeat(heartbeat(*held))).results
                for claimed, beat in zip(held, beats, strict=True):
                    expected = store_pb2.LEASE_STATE_HELD if claimed.job.id in survivors else store_pb2.LEASE_STATE_LOST
                    assert beat.state == expected
                for claimed in held[0::3]:
                    await tried(verbs.complete(complete(claimed)))
                for claimed in held[1::3]:
                    await tried(verbs.fail(fail(claimed)))
                for claimed in held[2::3]:
                    await tried(verbs.release(release(claimed)))
                for name in ids:
                    await tried(verbs.get(store_pb2.GetRequest(id=name)))
                    await tried(verbs.update(update(name, labels={"a": "b"}, priority=1)))
                for name in ids[::3]:
                    await tried(verbs.cancel(store_pb2.CancelRequest(id=name)))
                    await tried(verbs.delete(store_pb2.DeleteRequest(id=name)))
                for name in ids[::2]:
                    await tried(verbs.create(create(name, "q")))
                for number in range(0, jobs, 5):
                    await tried(verbs.create(create(queue="q", key=f"key-{number}")))
                await tried(verbs.list_ids(store_pb2.ListIdsRequest(limit=1_000)))
                await tried(verbs.list_queues(admin_pb2.ListQueuesRequest()))
                await tried(verbs.reclaim_stale(store_pb2.ReclaimStaleRequest()))
                # What can still be claimed is whole: no job comes twice at once, none is a blank one.
                seen: set[str] = set()
                while claimed_jobs := (await verbs.claim(claim("q", "mine", max_jobs=100, lease=300))).jobs:
                    for claimed in claimed_jobs:
                        assert claimed.job.id not in seen
                        assert claimed.job.status == RUNNING
                        assert claimed.job.queue in ("q", "mine")
                        seen.add(claimed.job.id)
                assert seen
                assert await life(verbs, "after")
        # A bug is answered UNAVAILABLE, which an engine that runs never is.
        assert job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE not in refusals
        assert [entry for entry in logs if entry["event"] == "bug"] == []
