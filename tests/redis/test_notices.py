"""Notices over the engine's pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.store.redis import RedisStore
from jobwire_server.store.types import Notice, NoticeKind

from tests.engines import Engine
from tests.redis.test_scripts import claim_request, create_request


@pytest.fixture
async def other(store: RedisStore, engine: Engine) -> AsyncIterator[RedisStore]:
    """A second replica on the same engine."""
    other = await RedisStore.connect(engine.url, replica="two", sweep_interval_ms=0)
    yield other
    await other.close()


async def test_a_waiting_replica_hears_of_one_ready_job_once(store: RedisStore, other: RedisStore) -> None:
    async with aclosing(store.notices()) as notices:
        assert (await anext(notices)).kind == NoticeKind.RESUMED
        claimed = await store.claim_from(0, claim_request(), 1, waiting=True)
        await other.create(create_request("a"))
        await other.create(create_request("b"))
        await store.get(store_pb2.GetRequest(id="b"), watch=True)
        await other.delete(store_pb2.DeleteRequest(id="b"))

        assert claimed == ([], False)
        assert await anext(notices) == Notice(NoticeKind.READY, 0, "default", "q")
        # Not told of "b": taken off the waiters by "a". The next notice is another one.
        assert await anext(notices) == Notice(NoticeKind.CHANGED, 0, "default", "b")


async def test_the_claiming_replica_hears_of_a_settlement_through_another(store: RedisStore, other: RedisStore) -> None:
    async with aclosing(store.notices()) as notices:
        assert (await anext(notices)).kind == NoticeKind.RESUMED
        await store.create(create_request("a"))
        [claimed] = (await store.claim(claim_request())).jobs
        lease = store_pb2.LeaseRef(id="a", token=claimed.lease_token)
        await other.complete(store_pb2.CompleteRequest(lease=lease))

        assert await anext(notices) == Notice(NoticeKind.SETTLED, 0, "default", claimed.lease_token)


async def test_a_lost_subscription_is_made_again_and_says_so(store: RedisStore, engine: Engine) -> None:
    async with aclosing(store.notices()) as notices, asyncio.timeout(20):
        for _ in range(3):
            assert (await anext(notices)).kind == NoticeKind.RESUMED
            async with engine.client() as client:
                await client.client_kill_filter(_type="pubsub")
        assert (await anext(notices)).kind == NoticeKind.RESUMED
