"""Notices over the engine's pub/sub: what is of this backend alone. Who is told of what is in the conformance tests."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from jobwire_server.store.redis import RedisStore
from jobwire_server.store.types import NoticeKind

from tests.engines import Engine


async def test_a_lost_subscription_is_made_again_and_says_so(store: RedisStore, engine: Engine) -> None:
    async with aclosing(store.notices()) as notices, asyncio.timeout(20):
        for _ in range(3):
            assert (await anext(notices)).kind == NoticeKind.RESUMED
            async with engine.client() as client:
                await client.client_kill_filter(_type="pubsub")
        assert (await anext(notices)).kind == NoticeKind.RESUMED
