"""Health follows what the engine can do, not whether it answers PING."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc
import pytest

from tests.engines import Process, durable_engine
from tests.proxy import Proxy
from tests.scenarios.engine_links import HealthWatch, called, served, url_of
from tests.scenarios.lives import life

# design.md promises 5 s; twice that here, for a machine that is busy with other tests.
HEALTH_SECONDS = 10.0

Fault = Callable[[Process, Proxy], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def killed(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    engine.kill()
    yield
    await asyncio.to_thread(engine.start)


@asynccontextmanager
async def read_only(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    """Its connections stand, and it answers every read, as a primary that was demoted."""
    async with engine.client() as client:
        await client.replicaof("127.0.0.1", "1")
        yield
        await client.replicaof("NO", "ONE")


@asynccontextmanager
async def full(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    async with engine.client() as client:
        await client.config_set("maxmemory", 1)
        yield
        await client.config_set("maxmemory", 0)


@asynccontextmanager
async def without_scripts(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    """NOPERM, to connections that have been welcome so far."""
    async with engine.client() as client:
        await client.acl_setuser("default", commands=["-eval", "-evalsha"])
        yield
        await client.acl_setuser("default", categories=["+@all"])


@asynccontextmanager
async def frozen(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    """Connections can be made, even: the kernel does that. Nothing is answered."""
    engine.pause()
    yield
    engine.resume()


@asynccontextmanager
async def paused(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    """CLIENT PAUSE, of writes."""
    async with engine.client() as client:
        await client.client_pause(60_000, all=False)
        yield
        await client.client_unpause()


@asynccontextmanager
async def slow(engine: Process, proxy: Proxy) -> AsyncIterator[None]:
    """More than 2 s for every answer."""
    proxy.delay_seconds = 1.5
    yield
    proxy.delay_seconds = 0


@pytest.mark.parametrize("fault", [killed, read_only, full, without_scripts, frozen, paused, slow])
async def test_d21_health_says_what_the_engine_is_good_for(fault: Fault) -> None:
    """Traffic went on to servers that failed all of it, since their health was set once at the start or asked for no
    more than a PING, which a read-only or full engine answers (spicedb #180, groupmq #16).
    """
    with durable_engine() as engine:
        async with (
            Proxy.before(engine.address) as proxy,
            served(url_of(proxy)) as (address, _),
            grpc.aio.insecure_channel(address) as channel,
            called(address) as [verbs],
        ):
            health = HealthWatch(channel)
            async with health.watching() as told:
                assert await told()
                assert await health.check()
                began = time.monotonic()
                async with fault(engine, proxy):
                    assert not await told()
                    assert time.monotonic() - began < HEALTH_SECONDS
                    assert not await health.check()
                began = time.monotonic()
                assert await told()
                assert time.monotonic() - began < HEALTH_SECONDS
                assert await health.check()
            # By itself and for good: the same connections, or new ones, carry every verb again.
            assert await life(verbs, "after")
