"""Connections that are dead on one side, or both, without a word; and pings that are not taken amiss."""

from __future__ import annotations

import asyncio

import grpc
import jobwire
import pytest
from jobwire import _endpoint
from jobwire.v1 import store_pb2_grpc
from jobwire_server import app
from jobwire_server.store.memory import MemoryStore

from tests.client.working import ended, working
from tests.proxy import Proxy, Way
from tests.requests import create
from tests.scenarios.servers import Jobs, jobs
from tests.scenarios.test_e_streams import Insides, insides
from tests.server.probe import next_jobs, next_message, stream_request
from tests.wait import wait_until

__all__ = ["insides", "jobs"]

Options = tuple[tuple[str, int], ...]


def quicker(options: Options, factor: int = 20) -> Options:
    """The options with everything that has to do with pings that many times as quick."""
    return tuple(
        (name, value // factor if ("keepalive_t" in name or "ping_" in name) and name.endswith("_ms") else value)
        for name, value in options
    )


@pytest.fixture
def twenty_times_as_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends' pings and their patience: 1.5 s and 0.5 s, where they are 30 s and 10 s."""
    monkeypatch.setattr(app, "_OPTIONS", quicker(app._OPTIONS))
    monkeypatch.setattr(_endpoint, "_OPTIONS", quicker(_endpoint._OPTIONS))


@pytest.mark.usefixtures("twenty_times_as_quick")
@pytest.mark.parametrize("way", [Way.REQUESTS, Way.REPLIES, Way.BOTH], ids=lambda way: way.name)
async def test_e06_a_server_ends_the_streams_of_a_client_that_vanished(insides: Insides, way: Way) -> None:
    """Without pings a server kept a dead client for ever, and a client waited for ever (kachaka-api #229, grpc #32095,
    grpclib #38). Here neither end hears that the other has gone.
    """
    async with (
        app.running(MemoryStore()) as server,
        Proxy.before(server.address) as proxy,
        jobwire.connect(proxy.address) as client,
        client.claim_stream("q", keepalive_interval=300) as stream,
    ):
        assert await stream.read() is not None
        assert not insides.are_idle()
        proxy.freeze(way)
        await wait_until(insides.are_idle)
        proxy.thaw()
        with pytest.raises(jobwire.Unavailable):
            await stream.read()
        assert not await client.exists("a")


@pytest.mark.usefixtures("twenty_times_as_quick")
@pytest.mark.parametrize("way", [Way.REQUESTS, Way.REPLIES], ids=lambda way: way.name)
async def test_e06_a_client_leaves_a_connection_that_swallows_its_calls(way: Way) -> None:
    """The same seen from a client that only makes calls: idle at first, then waiting for an answer."""
    async with (
        app.running(MemoryStore()) as server,
        Proxy.before(server.address) as proxy,
        jobwire.connect(proxy.address, timeout=1) as client,
    ):
        assert not await client.exists("a")
        proxy.freeze(way, new_connections_flow=True)

        async def answers() -> bool:
            try:
                return not await client.exists("a")
            except (jobwire.Unavailable, jobwire.DeadlineExceeded):
                return False

        await wait_until(answers)
        assert proxy.connections == 2


@pytest.mark.usefixtures("twenty_times_as_quick")
@pytest.mark.parametrize("way", [Way.REQUESTS, Way.REPLIES], ids=lambda way: way.name)
async def test_e06_a_busy_worker_survives_a_connection_that_is_half_open(jobs: Jobs, way: Way) -> None:
    """The same with a worker in the middle of its jobs: leases follow heartbeats, and each of its connections is
    replaced when it swallows what it is given.
    """
    async with (
        jobs.server() as server,
        Proxy.before(server.address) as proxy,
        jobwire.connect(server.address) as client,
    ):
        worker = jobwire.Worker(proxy.address, queues="q", concurrency=4, lease_duration=3)

        @worker.handler()
        async def handle(job: jobwire.JobContext) -> None:
            await asyncio.sleep(0.1)

        async with working(worker):
            created = [await client.create(queue="q", ttl=60, max_attempts=50) for _ in range(20)]
            await ended(client, created[0])
            opened = proxy.connections
            proxy.freeze(way, new_connections_flow=True)
            for job in created:
                assert (await ended(client, job)).failures == 0
            assert proxy.connections > opened


def test_e07_the_clients_pings_are_slower_than_the_server_allows() -> None:
    """A client that pinged more often than its server allowed was thrown out with too_many_pings (kv-cache #359, a3m
    #451, Cirq #7755).
    """
    server, client = dict(app._OPTIONS), dict(_endpoint._OPTIONS)
    assert client["grpc.keepalive_time_ms"] >= 2 * server["grpc.http2.min_ping_interval_without_data_ms"]
    assert server["grpc.http2.min_ping_interval_without_data_ms"] <= 10_000
    assert server["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1


@pytest.mark.usefixtures("twenty_times_as_quick")
@pytest.mark.parametrize("every_ms", [1_500, 500], ids=["as ours", "as often as is allowed"])
async def test_e07_pings_on_an_idle_stream_end_nothing(every_ms: int) -> None:
    """The same, watched for as long as four pings take, twenty times as quick as in earnest: three are too many.
    The second is a client of another make that pings as often as the server says it may.
    """
    async with app.running(MemoryStore()) as server, Proxy.before(server.address) as proxy:
        options = [*dict(_endpoint._OPTIONS, **{"grpc.keepalive_time_ms": every_ms}).items()]
        async with grpc.aio.insecure_channel(proxy.address, options) as channel:
            stub: store_pb2_grpc.StoreAsyncStub = store_pb2_grpc.StoreStub(channel)
            call = stub.ClaimStream(stream_request("q", keepalive=300))
            assert (await next_message(call)).HasField("opened")
            await asyncio.sleep(4 * every_ms / 1_000 + 1)
            await stub.Create(create("a", "q"))
            assert [job.job.id for job in await next_jobs(call)] == ["a"]
            assert proxy.connections == 1
            call.cancel()
