"""Server processes that are told to stop, with and without an engine that answers; and the memory of one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from pathlib import Path

import grpc
import pytest
from jobwire.v1 import store_pb2

from tests.engines import Process, durable_engine
from tests.errors import store_error
from tests.requests import claim, create, seconds
from tests.scenarios.scale import scaled
from tests.scenarios.servers import server_process
from tests.server.probe import Stream, Stub, connected, next_jobs, next_message, stream_request
from tests.wait import wait_until

# Of an engine that answers nothing may be left at the end of it, and nobody waits so long.
GRACE, LONG_GRACE = 1.0, 20.0
WORRIES = ("Traceback", "was destroyed", "never retrieved", "never awaited", '"bug"')


@pytest.mark.parametrize("engine_answers", [True, False], ids=["engine answers", "engine frozen"])
async def test_e01_a_server_ends_within_its_grace_and_every_call_is_told(tmp_path: Path, engine_answers: bool) -> None:
    """Stopping returned while handlers still tidied up, or never, with streams open (grpc #37239, #28999, #28989).
    An engine that does not answer must not hold it up either.
    """
    ends: Counter[str] = Counter()
    with durable_engine() as engine:
        for number in range(scaled(2)):
            ends += await stop_under_load(engine, tmp_path / f"{number}.log", engine_answers)
    assert ends["stream: OK after drain"] > 0
    if engine_answers:
        assert ends["stream: OK after drain"] == 300 * scaled(2)
    # The ends in protocol.md; what is cut off at the end of the grace is CANCELLED or UNAVAILABLE.
    cut_off = {"CANCELLED", "UNAVAILABLE", "stream: CANCELLED", "stream: UNAVAILABLE"}
    assert set(ends) <= {"OK", "DRAINING", "ENGINE_UNAVAILABLE", "stream: OK after drain"} | cut_off, ends


async def stop_under_load(engine: Process, log: Path, engine_answers: bool) -> Counter[str]:
    """Starts and stops a server with 300 streams and 100 callers. How each stream and call ended."""
    ends: Counter[str] = Counter()
    grace = LONG_GRACE if engine_answers else GRACE
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(engine.url, log, "--drain-grace", str(grace)))
        stubs = [await stack.enter_async_context(connected(server.address)) for _ in range(4)]
        opened = await asyncio.gather(*(open_stream(stubs[index % 4]) for index in range(300)))
        unary = [asyncio.create_task(busy(stubs[index % 4], index, ends)) for index in range(100)]
        waiting = asyncio.create_task(outcome(stubs[0].Claim(claim("none", wait=seconds(60)))))
        await wait_until(lambda: ends["OK"] > 100)
        if not engine_answers:
            engine.pause()
        try:
            server.process.send_signal(signal.SIGTERM)
            # Two seconds are promised; the third is for a busy machine.
            async with asyncio.timeout(grace + 3):
                assert await server.process.wait() == 0, server.log()
        finally:
            engine.resume()
        ends.update(await asyncio.gather(waiting, *(read_out(call) for call in opened)))
        await asyncio.gather(*unary)
        assert [word for word in WORRIES if word in server.log()] == [], server.log()
    return ends


async def open_stream(stub: Stub) -> Stream:
    call = stub.ClaimStream(stream_request("q", max_in_flight=100))
    assert (await next_message(call)).HasField("opened")
    return call


async def busy(stub: Stub, number: int, ends: Counter[str]) -> None:
    """Calls one after the other, every other of them refused, until there is no server."""
    while True:
        if number % 2:
            end = await outcome(stub.Create(create(queue="q")))
        else:
            end = await outcome(stub.Get(store_pb2.GetRequest(id=f"none-{number}")))
            end = "OK" if end == "JOB_NOT_FOUND" else end
        ends[end] += 1
        if end != "OK":
            return


async def outcome(call: object) -> str:
    """OK, or the reason in the details, or gRPC's own code."""
    try:
        await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        if any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ()):
            return store_error(error).reason_name
        return error.code().name
    return "OK"


async def read_out(call: Stream) -> str:
    """How a stream ended."""
    last = None
    try:
        while isinstance(message := await call.read(), store_pb2.ClaimStreamResponse):
            last = message.WhichOneof("event")
    except grpc.aio.AioRpcError as error:
        return f"stream: {error.code().name}"
    return f"stream: {(await call.code()).name} after {last}"


async def test_e03_streams_that_are_cancelled_cost_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A handler that swallowed its cancel leaked natively for each stream (grpc #43360, #34843). The server's memory is
    measured after a warm-up; what is left is well below a leaked stream.
    """
    rounds = scaled(2_000)
    async with server_process("memory://", tmp_path / "log") as server, connected(server.address) as stub:

        async def come_and_go(count: int) -> None:
            for _ in range(count):
                call = stub.ClaimStream(stream_request("q"))
                await next_message(call)
                call.cancel()

        async def all_come_and_go(count: int) -> int:
            await asyncio.gather(*(come_and_go(count // 50) for _ in range(50)))
            return server.resident_bytes()

        before = await all_come_and_go(rounds)
        after = await all_come_and_go(rounds)
        with capsys.disabled():
            print(f"\nE03: {(after - before) / rounds:.0f} bytes per cancelled stream ({rounds} of them)")
        assert after - before < rounds * 2_000


async def test_e11_a_client_that_does_not_read_costs_neither_memory_nor_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody read was buffered without end, its leases with it (grpc #37715, #11966, typedb #5726). Each stream
    here has credit for every job, and its client reads only the first message.
    """
    with durable_engine() as engine:
        async with server_process(engine.url, tmp_path / "log") as server, connected(server.address) as stub:
            before = server.resident_bytes()
            slow = []
            for _ in range(5):
                call = stub.ClaimStream(stream_request("q", max_in_flight=200, receipt_timeout=seconds(2)))
                await next_message(call)
                slow.append(call)
            for number in range(150):
                await stub.Create(create(f"{number}", "q", payload=bytes(1_000_000)))
            held = await settled_down(stub)
            used = server.resident_bytes() - before
            with capsys.disabled():
                print(f"\nE11: {held} of 150 MB leased to 5 clients that do not read, {used / 1e6:.0f} MB more memory")
            # Per stream what the transport holds and two messages of 4 MB, one being written and one claimed.
            assert held < 100
            assert used < 120_000_000
            # What was sent and not read comes back for want of a receipt; a client that reads gets everything.
            async with connected(server.address) as other:
                done: set[str] = set()
                call = other.ClaimStream(stream_request("q", max_in_flight=200))
                await next_message(call)
                while len(done) < 150:
                    done |= {job.job.id for job in await next_jobs(call, within=30)}
                call.cancel()
            for call in slow:
                call.cancel()


async def settled_down(stub: Stub) -> int:
    """How many jobs are leased, once that number stands."""
    counts = [-1]

    async def stands() -> bool:
        jobs = (await stub.BatchGet(store_pb2.BatchGetRequest(ids=[f"{number}" for number in range(150)]))).results
        counts.append(sum(result.job.status == 2 for result in jobs))
        return counts[-1] == counts[-2]

    await wait_until(stands)
    return counts[-1]
