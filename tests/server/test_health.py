"""`grpc.health.v1` follows the engine, and reflection tells the contract."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from jobwire_server.app import running
from jobwire_server.settings import Settings

from tests.server.probe import Probe
from tests.wait import wait_until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", "jobwire.v1.Store", "jobwire.v1.Admin"])
async def test_health_follows_the_engine(store: Probe, service: str) -> None:
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def status() -> int:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            return int(answer.status)

        async def is_serving() -> bool:
            return bool(await status() == SERVING)

        async def is_not_serving() -> bool:
            return bool(await status() == NOT_SERVING)

        assert await is_serving()
        store.go_down()
        await wait_until(is_not_serving)
        store.failure = None
        await wait_until(is_serving)


async def test_a_server_around_an_engine_that_is_down_is_not_serving_from_the_start(store: Probe) -> None:
    store.go_down()
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING


async def test_a_watcher_of_health_hears_of_the_drain_and_does_not_hold_it_up(store: Probe) -> None:
    async with AsyncExitStack() as after:
        async with running(store, settings=Settings(drain_grace=60)) as server:
            channel = await after.enter_async_context(grpc.aio.insecure_channel(server.address))
            call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await call.read()).status == SERVING
            began = time.monotonic()
        assert time.monotonic() - began < 30
        assert (await call.read()).status == NOT_SERVING


async def test_reflection_lists_the_services(store: Probe) -> None:
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await call.done_writing()
        answer = await call.read()
        names = {service.name for service in answer.list_services_response.service}
        assert {"jobwire.v1.Store", "jobwire.v1.Admin", "grpc.health.v1.Health"} <= names
