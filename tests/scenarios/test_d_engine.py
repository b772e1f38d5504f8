"""The engine forgets scripts, loads, is full, drops keys."""

from __future__ import annotations

import asyncio
import time

from jobwire.v1 import store_pb2
from jobwire_server.store.redis import RedisStore

from tests.conformance.verbs import Verbs
from tests.engines import Engine, durable_engine
from tests.requests import claim, complete, create
from tests.scenarios.engine_links import called, forget_scripts, served, stored
from tests.scenarios.lives import life, settle_in_a_batch
from tests.scenarios.scale import scaled

LOAD_SECONDS = scaled(3)


async def test_d01_scripts_flushed_under_load_are_sent_again_unseen(engine: Engine) -> None:
    """Each process remembered that the engine knows its scripts; after a flush or restart every call failed for hours
    while PING stayed green (groupmq #16).
    """
    await engine.flush()
    async with served(engine.url) as (address, _), called(address) as [verbs]:
        calm = await life(verbs, "calm")
        deadline = time.monotonic() + LOAD_SECONDS
        stories: list[list[object]] = []
        flushes = 0

        async def live_on(lane: int) -> None:
            number = 0
            while time.monotonic() < deadline:
                stories.append(await life(verbs, f"c-{lane}-{number}"))
                number += 1

        async def flush_on() -> None:
            nonlocal flushes
            while time.monotonic() < deadline:
                await forget_scripts(engine)
                flushes += 1
                await asyncio.sleep(0.02)

        await asyncio.gather(flush_on(), *(live_on(lane) for lane in range(8)))
    assert flushes > 10
    assert [story for story in stories if story != calm] == []
    assert len(stories) > 8


async def test_d01_the_first_call_ever_of_each_script_may_come_after_a_flush(engine: Engine) -> None:
    """The same: a script that was never loaded before is as unknown as one that was forgotten (groupmq #16)."""

    class Forgetful:
        """The engine forgets before each call."""

        def __init__(self, store: RedisStore) -> None:
            self._store = store

        def __getattr__(self, verb: str) -> object:
            async def call(request: object) -> object:
                await forget_scripts(engine)
                return await getattr(self._store, verb)(request)

            return call

    await engine.flush()
    async with stored(engine.url) as store:
        verbs: Verbs = Forgetful(store)  # type: ignore[assignment]
        flushed = await life(verbs, "c-1")
        assert flushed == await life(store, "calm")

        await verbs.create(create("a", "q"))
        [claimed] = (await verbs.claim(claim("q"))).jobs
        [result] = (await verbs.batch_settle(settle_in_a_batch(claimed))).results
        assert not result.fail.repeated_call
        await forget_scripts(engine)
        outcome, handed = await store.hand_off(create("b", "q"), claim("q"), 5)
        assert [job.job.id for job in handed.jobs] == ["a", "b"], outcome
        await forget_scripts(engine)
        assert await store.look(0, [("default", "q")]) == [False]
        await forget_scripts(engine)
        await store.ping()


async def test_d01_a_killed_engine_that_comes_back_is_taught_the_scripts_again() -> None:
    """The same after a restart: nothing that only a new server process would repair (jesque #100)."""
    with durable_engine() as engine:
        async with stored(engine.url) as store:
            for round_ in range(3):
                await store.create(create(f"job-{round_}", "q"))
                [claimed] = (await store.claim(claim("q", lease=300))).jobs
                engine.kill()
                engine.start()
                assert not (await store.complete(complete(claimed))).repeated_call
                assert claimed.job.attempt == 1
            assert len((await store.list_ids(store_pb2.ListIdsRequest())).ids) == 3
