"""Notices from the engine's pub/sub to one replica. Hints only: any may be lost, and RESUMED says when some may be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator

from redis import exceptions
from redis.asyncio.client import PubSub

from jobwire_server.store.types import Notice, NoticeKind

from .engine import new_client

# A connection that gave no sign for this long, although it was asked for one in the middle, is given up.
_SILENCE_S = 10.0
_PAUSE_MAX_S = 1.0


async def notices(url: str, channel: str) -> AsyncGenerator[Notice, None]:
    """Notices without end: subscribes, and again, with jitter, whenever the connection is lost."""
    # No socket timeout: silence is normal here, and `_read` has its own way to notice a dead connection.
    client = new_client(url, 2, socket_timeout=None)
    try:
        while True:
            pubsub = client.pubsub()
            try:
                async for notice in _read(pubsub, channel):
                    yield notice
            except (TimeoutError, exceptions.RedisError, OSError):
                await asyncio.sleep(random.uniform(0, _PAUSE_MAX_S))  # noqa: S311 - jitter
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]
    finally:
        await client.aclose()


async def _read(pubsub: PubSub, channel: str) -> AsyncGenerator[Notice, None]:
    await pubsub.subscribe(channel)
    asked = False
    while True:
        message = await pubsub.get_message(timeout=_SILENCE_S / 2)
        if message is None:
            if asked:
                return
            await pubsub.ping()
            asked = True
            continue
        asked = False
        if message["type"] == "subscribe":
            yield Notice(NoticeKind.RESUMED)
        elif message["type"] == "message":
            kind, partition, namespace, name = message["data"].decode().split("\x1f", 3)
            yield Notice(NoticeKind(kind), int(partition), namespace, name)
