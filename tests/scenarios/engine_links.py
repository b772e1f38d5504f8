"""Stores and servers whose way to the engine leads through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from jobwire_server.app import running
from jobwire_server.store.redis import RedisStore

from tests.conformance.grpc_store import GrpcStore
from tests.engines import Engine
from tests.proxy import Proxy
from tests.wait import wait_until


@asynccontextmanager
async def proxied(engine: Engine) -> AsyncIterator[Proxy]:
    """A proxy of the engine, which is emptied first."""
    await engine.flush()
    target = engine.url.removeprefix("unix://").removeprefix("redis://").removesuffix("/0")
    async with Proxy.before(target) as proxy:
        yield proxy


def url_of(proxy: Proxy) -> str:
    """The engine's URL by way of the proxy."""
    return f"redis://{proxy.address}/0"


@asynccontextmanager
async def stored(url: str, **options: Any) -> AsyncIterator[RedisStore]:
    """A store, closed at the end."""
    store = await RedisStore.connect(url, **options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def served(url: str) -> AsyncIterator[tuple[str, RedisStore]]:
    """A server's address, and its store."""
    async with stored(url) as store, running(store) as server:
        yield server.address, store


@asynccontextmanager
async def called(address: str, channels: int = 1) -> AsyncIterator[list[GrpcStore]]:
    """The verbs over so many channels of their own."""
    async with AsyncExitStack() as stack:
        # A pool of its own for each, or they would share one connection.
        options = (("grpc.use_local_subchannel_pool", 1),)
        yield [
            GrpcStore(await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options)))
            for _ in range(channels)
        ]


async def clients_of(engine: Engine) -> int:
    """How many connections the engine has, our own question's left out."""
    async with engine.client() as client:
        return int((await client.info("clients"))["connected_clients"]) - 1


async def forget_scripts(engine: Engine) -> None:
    """SCRIPT FLUSH."""
    async with engine.client() as client:
        await client.script_flush()


class HealthWatch:
    """What `grpc.health.v1` says of the store's service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = health_pb2_grpc.HealthStub(channel)

    async def check(self) -> bool:
        """Whether it is SERVING, by Check."""
        answer = await self._stub.Check(health_pb2.HealthCheckRequest(service="jobwire.v1.Store"))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def becomes(self, serving: bool, within: float) -> None:
        """Waits for it by Check."""

        async def is_so() -> bool:
            return await self.check() is serving

        await wait_until(is_so, within)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        """Watch: each call answers the next state that the server tells of."""
        call = self._stub.Watch(health_pb2.HealthCheckRequest(service="jobwire.v1.Store"))

        async def told() -> bool:
            return bool((await call.read()).status == health_pb2.HealthCheckResponse.SERVING)

        try:
            yield told
        finally:
            call.cancel()
