"""Shutting down: streams are told and end with OK, waiting calls are sent elsewhere, calls in progress may end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import jobwire
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server import app
from jobwire_server.app import StartError, running
from jobwire_server.settings import Settings

from tests.errors import store_error
from tests.requests import PENDING, claim, complete, create, seconds
from tests.server.probe import Probe, Views, connected, next_jobs, next_message, stream_request, streaming
from tests.wait import wait_until


async def test_streams_are_told_and_end_with_ok(store: Probe) -> None:
    async with AsyncExitStack() as after:
        async with running(store, settings=Settings(drain_grace=60)) as server:
            stub = await after.enter_async_context(connected(server.address))
            calls = [stub.ClaimStream(stream_request("q")) for _ in range(50)]
            for call in calls:
                assert (await next_message(call)).HasField("opened")
        for call in calls:
            assert (await next_message(call)).HasField("drain")
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK


async def test_waiting_calls_are_sent_elsewhere(store: Probe, views: Views) -> None:
    async with AsyncExitStack() as after:
        async with running(store) as server:
            stub = await after.enter_async_context(connected(server.address))
            await stub.Create(create("a", "other"))
            waiting = [
                asyncio.ensure_future(stub.Claim(claim("q", wait=seconds(60)))),
                asyncio.ensure_future(stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)))),
            ]
            await views.idle(1)
            await wait_until(lambda: store.watched == 1)
        for call in waiting:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert store_error(caught.value).reason == job_pb2.ERROR_REASON_DRAINING


async def test_a_call_in_progress_may_end(store: Probe, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_REFUSE_SECONDS", 60)  # a busy machine may be late with the calls below
    async with AsyncExitStack() as after:
        async with running(store, settings=Settings(drain_grace=60)) as server:
            stub = await after.enter_async_context(connected(server.address))
            await stub.Create(create("a", "q"))
            idle = await after.enter_async_context(streaming(stub, "other"))
            await views.idle(1, "other")
            claims = store.claims
            store.gate.clear()
            claiming = asyncio.ensure_future(stub.Claim(claim("q")))
            await wait_until(lambda: store.claims > claims)

            async def answer_in_the_drain() -> None:
                assert (await next_message(idle, within=30)).HasField("drain")
                # One that comes now is told that nothing was done, so that its client may go elsewhere.
                for late in (stub.Create(create("b", "q")), stub.ClaimStream(stream_request("q")).read()):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await late
                    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_DRAINING
                store.gate.set()

            answering = asyncio.create_task(answer_in_the_drain())
        await answering
        assert len((await claiming).jobs) == 1


async def test_a_call_that_does_not_end_keeps_nobody_from_another_server(store: Probe, views: Views) -> None:
    """A client that knows both servers has its connection here: it must not be refused until the other's call ends."""
    async with AsyncExitStack() as after:
        other = await after.enter_async_context(running(store.beside()))
        async with running(store, settings=Settings(drain_grace=60)) as server:
            stub = await after.enter_async_context(connected(server.address))
            client = await after.enter_async_context(jobwire.connect(f"ipv4:{server.address},{other.address}"))
            await client.create(job_id="before", queue="q", ttl=60)
            idle = await after.enter_async_context(streaming(stub, "other"))
            await views.idle(1, "other")
            store.gate.clear()
            claiming = asyncio.ensure_future(stub.Claim(claim("q")))
            await wait_until(lambda: store.claims > 1)

            async def call_in_the_drain() -> None:
                try:
                    assert (await next_message(idle, within=30)).HasField("drain")
                    await client.create(job_id="meanwhile", queue="third", ttl=60)
                    assert not claiming.done()
                finally:
                    store.gate.set()

            calling = asyncio.create_task(call_in_the_drain())
        await calling
        assert len((await claiming).jobs) == 1


async def test_the_grace_bounds_the_drain(store: Probe) -> None:
    async with AsyncExitStack() as after:
        async with running(store, settings=Settings(drain_grace=0.3)) as server:
            stub = await after.enter_async_context(connected(server.address))
            await stub.Create(create("a", "q"))
            store.gate.clear()
            claiming = asyncio.ensure_future(stub.Claim(claim("q")))
            await wait_until(lambda: store.claims == 1)
            # The engine answers only when the caller has been cut off.
            claiming.add_done_callback(lambda _: store.gate.set())
        with pytest.raises(grpc.aio.AioRpcError):
            await claiming
    # Claimed for a caller that was cut off: given back before the store may be closed.
    assert (await store.get(store_pb2.GetRequest(id="a"))).job.status == PENDING


async def test_what_a_stream_held_can_be_settled_through_another_replica(store: Probe) -> None:
    async with AsyncExitStack() as after:
        async with running(store) as server:
            stub = await after.enter_async_context(connected(server.address))
            call = stub.ClaimStream(stream_request("q"))
            await next_message(call)
            await stub.Create(create("a", "q"))
            [job] = await next_jobs(call)
        async with running(store.beside()) as other, connected(other.address) as stub:
            await stub.Complete(complete(job))


async def test_e14_a_port_that_is_taken_is_not_shared(store: Probe) -> None:
    async with running(store) as server:
        with pytest.raises(StartError, match="cannot listen"):
            async with running(store.beside(), address=server.address):
                pass
