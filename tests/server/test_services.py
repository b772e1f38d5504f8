"""What is answered in the place of a handler: to bytes that do not parse, and before there is a store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.app import running
from jobwire_server.store.redis.embedded import find_binary

from tests.errors import store_error
from tests.requests import create
from tests.server.probe import Probe, connected
from tests.server.test_process import COMMAND, Process
from tests.wait import wait_until

GARBAGE = [b"\xff", b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe"]


def raw(channel: grpc.aio.Channel) -> Any:
    """For calls of plain bytes, which the types of a channel do not know."""
    return channel


@pytest.mark.parametrize("method", ["Store/Create", "Store/Get", "Store/BatchSettle", "Store/Watch", "Admin/GetQueue"])
@pytest.mark.parametrize("data", GARBAGE)
async def test_e22_bytes_that_do_not_parse_are_an_invalid_argument(store: Probe, method: str, data: bytes) -> None:
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await raw(channel).unary_unary(f"/jobwire.v1.{method}")(data)
        error = store_error(refused.value)
        assert error.reason == job_pb2.ERROR_REASON_FIELD_INVALID
        assert set(error.fields) == {"request"}


async def test_e22_garbage_on_a_stream_ends_it_alone(store: Probe) -> None:
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = raw(channel).unary_stream("/jobwire.v1.Store/ClaimStream")(b"\xff\xff\xff")
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        async with connected(server.address) as stub:
            assert (await stub.Create(create("a", "q"))).created


async def test_a_method_that_nobody_knows_is_unimplemented(store: Probe) -> None:
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        for method in ("/jobwire.v1.Store/Nothing", "/other.Service/Get"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await raw(channel).unary_unary(method)(b"")
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_until_the_engine_answers_calls_are_unavailable_and_health_says_so(tmp_path: Path) -> None:
    socket = tmp_path / "e.sock"
    process = await asyncio.create_subprocess_exec(
        COMMAND, "serve", "--log-format", "json", "--store-url", f"unix://{socket}",
        "--listen", "127.0.0.1:0", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    server, engine = Process(process), None
    try:
        away = await server.event("the engine is away")
        address = away["address"]
        assert "No such file" in away["problem"]
        async with connected(address) as stub, grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            async def status() -> int:
                answer = await health.Check(health_pb2.HealthCheckRequest(service="jobwire.v1.Store"))
                return int(answer.status)

            assert await status() == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Exists(store_pb2.ExistsRequest(id="a"))
            assert store_error(refused.value).reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ClaimStream(store_pb2.ClaimStreamRequest()).read()
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE

            engine = await asyncio.create_subprocess_exec(
                str(find_binary()), "--port", "0", "--unixsocket", str(socket), "--save", "",
                "--dir", str(tmp_path), stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip

            async def is_serving() -> bool:
                return bool(await status() == health_pb2.HealthCheckResponse.SERVING)

            await wait_until(is_serving, 20)
            assert not (await stub.Exists(store_pb2.ExistsRequest(id="a"))).exists
    finally:
        for started in (process, engine):
            if started is not None and started.returncode is None:
                started.kill()
                await started.wait()
