"""The worker's claim stream: reopened after every end, without taking running jobs along."""

from __future__ import annotations

import asyncio

import jobwire
from jobwire_server.app import running
from jobwire_server.store.memory import MemoryStore

from tests.client.working import ended, working
from tests.proxy import Proxy
from tests.wait import wait_until


async def test_a_restarted_server_finds_its_workers_again() -> None:
    store = MemoryStore()
    async with running(store, address="127.0.0.1:0") as server:
        address = server.address
    begun, go_on = asyncio.Event(), asyncio.Event()
    worker = jobwire.Worker(address, queues="q", lease_duration=20)

    @worker.handler("long")
    async def long(job: jobwire.JobContext) -> str:
        begun.set()
        await go_on.wait()
        return f"attempt {job.job.attempt}"

    @worker.handler()
    async def short(job: jobwire.JobContext) -> None: ...

    # Nobody is there yet when the worker starts.
    async with jobwire.connect(address) as client, asyncio.timeout(60), working(worker):
        async with running(store, address=address):
            job = await client.create(queue="q", kind="long", ttl=60)
            await begun.wait()
        async with running(store, address=address):
            assert (await ended(client, await client.create(queue="q", ttl=60))).failures == 0
            go_on.set()
            assert (await ended(client, job)).result == b"attempt 1"


async def test_a_settlement_outlasts_the_servers_restart() -> None:
    store = MemoryStore()
    go_on = asyncio.Event()
    async with running(store, address="127.0.0.1:0") as server:
        address = server.address
        worker = jobwire.Worker(address, queues="q", lease_duration=20)
        begun, finished = asyncio.Event(), asyncio.Event()

        @worker.handler()
        async def handle(job: jobwire.JobContext) -> str:
            begun.set()
            await go_on.wait()
            finished.set()
            return f"attempt {job.job.attempt}"

        serving = asyncio.create_task(worker.serve())
        async with jobwire.connect(address) as client:
            job = await client.create(queue="q", ttl=60)
            await begun.wait()
    go_on.set()  # the handler ends while nobody is there to hear of it
    await finished.wait()
    async with running(store, address=address), jobwire.connect(address) as client:
        assert (await ended(client, job)).result == b"attempt 1"
        worker.stop()
        await serving


async def test_a_silent_stream_is_reopened_on_another_connection(address: str, client: jobwire.Client) -> None:
    async with Proxy.before(address) as proxy:
        worker = jobwire.Worker(proxy.address, queues="q", lease_duration=1)

        @worker.handler()
        async def handle(job: jobwire.JobContext) -> None: ...

        async with working(worker):
            await ended(client, await client.create(queue="q", ttl=60))
            connections = proxy.connections
            proxy.freeze(new_connections_flow=True)
            await wait_until(lambda: proxy.connections > connections, seconds=30)
            # Settlements have a new connection soon, too; until then the dead stream may get the job, in vain.
            await ended(client, await client.create(queue="q", ttl=60))
