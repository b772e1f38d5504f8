"""`jobwire serve` as a process, over a real engine."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from jobwire.v1 import store_pb2

from tests.engines import Engine
from tests.requests import claim, complete, create
from tests.server.probe import connected, next_jobs, next_message, stream_request

COMMAND = str(Path(sys.executable).with_name("jobwire"))


class Process:
    """A server process and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.address = ""

    async def event(self, name: str, within: float = 30.0) -> dict[str, Any]:
        """Its next event of that name; fails at a line that is none."""
        assert self._process.stderr is not None
        async with asyncio.timeout(within):
            while line := await self._process.stderr.readline():
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
        raise AssertionError(f"ended without {name!r}")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    async def ended(self, within: float) -> int:
        """Its exit code."""
        async with asyncio.timeout(within):
            return await self._process.wait()


@asynccontextmanager
async def server(store_url: str, *flags: str, listen: str = "127.0.0.1:0") -> AsyncIterator[Process]:
    """A server that serves, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, "serve", "--log-format", "json", "--store-url", store_url, "--listen", listen, *flags,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Process(process)
    try:
        running.address = (await running.event("serving"))["address"]
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def url(engine: Engine) -> str:
    """Of an empty engine."""
    await engine.flush()
    return engine.url


async def test_it_serves_drains_and_exits_with_0(url: str) -> None:
    async with server(url, "--drain-grace", "60") as first, server(url) as second, connected(first.address) as stub:
        calls = [stub.ClaimStream(stream_request("q")) for _ in range(50)]
        for call in calls:
            assert (await next_message(call)).HasField("opened")
        async with connected(second.address) as other:
            await other.Create(create("a", "q"))
            first.signal(signal.SIGTERM)
            jobs: list[store_pb2.ClaimedJob] = []
            for call in calls:
                while (message := await next_message(call)).WhichOneof("event") != "drain":
                    jobs.extend(message.jobs.jobs)
                assert await call.read() is grpc.aio.EOF
                assert await call.code() is grpc.StatusCode.OK
            assert await first.ended(30) == 0
            # Whether or not the job was out already, the other replica knows what to do with it.
            jobs = jobs or list((await other.Claim(claim("q"))).jobs)
            await other.Complete(complete(jobs[0]))


@pytest.mark.parametrize("hurry", [False, True])
async def test_it_exits_within_its_grace_or_at_once_when_asked_twice(url: str, hurry: bool) -> None:
    async with server(url, "--drain-grace", "300" if hurry else "1") as process, connected(process.address) as stub:
        # Its client does not read, so that the stream cannot end by itself.
        await stub.Create(create("a", "q", payload=bytes(1_900_000)))
        await stub.Create(create("b", "q", payload=bytes(1_900_000)))
        call = stub.ClaimStream(stream_request("q", max_in_flight=2))
        await call.wait_for_connection()
        process.signal(signal.SIGTERM)
        await process.event("draining")
        if hurry:
            process.signal(signal.SIGTERM)
        assert await process.ended(30) == 0
        call.cancel()


async def test_replicas_wake_each_other(url: str) -> None:
    async with (
        server(url) as first,
        server(url) as second,
        connected(first.address) as stub,
        connected(second.address) as other,
    ):
        call = stub.ClaimStream(stream_request("q"))
        await next_message(call)
        began = time.monotonic()
        for _ in range(20):
            await other.Create(create(queue="q"))
            [job] = await next_jobs(call)
            await other.Complete(complete(job))
        # Without notices each would have waited for a check of the stream's lease, a second after it took the last job.
        assert time.monotonic() - began < 20
        call.cancel()


async def test_e14_a_port_that_is_taken_ends_the_process_with_one_line(url: str) -> None:
    async with server(url) as process:
        second = await asyncio.create_subprocess_exec(
            COMMAND, "serve", "--store-url", url, "--listen", process.address, stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await second.communicate()
        assert second.returncode == 1
        [line] = stderr.decode().splitlines()
        assert process.address in line


async def test_credentials_that_the_engine_refuses_end_the_process_with_one_line(url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        COMMAND, "serve", "--store-url", url.replace("unix://", "unix://nobody:secret@"), "--listen", "127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):  # it would try again for ever
        _, stderr = await process.communicate()
    assert process.returncode == 1
    [line] = stderr.decode().splitlines()
    assert "credentials" in line
    assert "secret" not in line


async def test_an_address_that_others_reach_is_warned_of() -> None:
    process = await asyncio.create_subprocess_exec(
        COMMAND, "serve", "--log-format", "json", "--store-url", "memory://", "--listen", "0.0.0.0:0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Process(process)
    try:
        warned = await running.event("reachable from other machines, and there is no authentication yet")
        assert warned["level"] == "warning"
    finally:
        process.kill()
        await process.wait()


async def test_an_engine_that_is_not_there_is_waited_for_until_a_signal(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        COMMAND, "serve", "--log-format", "json", "--store-url", f"unix://{tmp_path}/none.sock",
        "--listen", "127.0.0.1:0", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Process(process)
    try:
        await running.event("the engine is away")
        running.signal(signal.SIGTERM)
        assert await running.ended(30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
