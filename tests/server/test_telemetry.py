"""Spans, metrics and their exporters, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server import telemetry
from jobwire_server.app import running
from jobwire_server.store.errors import CODES, StoreError
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tests.requests import claim, complete, create, fail, heartbeat, release, seconds
from tests.scenarios.scale import scaled
from tests.server.probe import Probe, Stub, connected, next_message, stream_request
from tests.telemetry import Recorded
from tests.wait import wait_until

Call = grpc.aio.UnaryStreamCall[store_pb2.ClaimStreamRequest, store_pb2.ClaimStreamResponse]

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# What the conventions for RPC spans call a fault of the server; everything else is the caller's.
FAULTS = {"UNIMPLEMENTED", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@pytest.fixture
async def stub(store: Probe) -> AsyncIterator[Stub]:
    """Of an instrumented server around `store`."""
    async with (
        running(store, interceptors=[telemetry.interceptor()]) as server,
        connected(server.address) as stub,
    ):
        yield stub


def told(span: ReadableSpan) -> dict[str, object]:
    """The attributes that say what the call was about and how it ended."""
    left_out = ("rpc.user_agent", "net.peer.ip", "net.peer.port", "net.peer.name", "rpc.system")
    return {name: value for name, value in (span.attributes or {}).items() if name not in left_out}


def wire(error: grpc.aio.AioRpcError) -> tuple[object, ...]:
    """All that a caller sees of a refusal."""
    return error.code(), error.details(), sorted(error.trailing_metadata() or ())


async def test_every_unary_call_has_one_span_that_says_what_it_was_about(
    store: Probe, stub: Stub, recorded: Recorded
) -> None:
    metadata = (("traceparent", TRACEPARENT),)
    await stub.Create(create("a", "q", payload=b"secret"), metadata=metadata)
    drawn = (await stub.Create(create(queue="q"), metadata=metadata)).job.id
    await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(0.01)), metadata=metadata)
    [first] = (await stub.Claim(claim("q"), metadata=metadata)).jobs
    await stub.Heartbeat(heartbeat(first), metadata=metadata)
    await stub.Complete(complete(first), metadata=metadata)
    [second] = (await stub.Claim(claim("q"), metadata=metadata)).jobs
    await stub.Release(release(second), metadata=metadata)
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Fail(fail(second), metadata=metadata)

    await wait_until(lambda: len(recorded.spans()) == 9)
    assert [(span.name.rpartition("/")[2], told(span)) for span in recorded.spans()] == [
        (method, {"rpc.service": "jobwire.v1.Store", "rpc.method": method, "rpc.grpc.status_code": code, **about})
        for method, code, about in [
            ("Create", 0, {"job.id": "a", "job.namespace": "default", "job.queue": "q"}),
            ("Create", 0, {"job.id": drawn, "job.namespace": "default", "job.queue": "q"}),
            ("Get", 0, {"job.id": "a", "job.namespace": "default", "job.queue": "q"}),
            ("Claim", 0, {"job.queue": "q"}),
            ("Heartbeat", 0, {}),
            ("Complete", 0, {"job.id": "a", "job.namespace": "default"}),
            ("Claim", 0, {"job.queue": "q"}),
            ("Release", 0, {"job.id": drawn, "job.namespace": "default"}),
            ("Fail", 9, {"job.id": drawn, "job.namespace": "default"}),
        ]
    ]
    for span in recorded.spans():
        assert span.kind is SpanKind.SERVER
        assert span.parent is not None
        assert span.parent.span_id == int(TRACEPARENT.split("-")[2], 16)
        assert "secret" not in span.to_json()
        assert first.lease_token not in span.to_json()


@pytest.mark.parametrize("reason", CODES)
async def test_f02_instrumentation_changes_no_refusal_and_only_faults_of_the_server_are_errors(
    store: Probe, stub: Stub, recorded: Recorded, reason: job_pb2.ErrorReason.ValueType
) -> None:
    """Elsewhere an instrumented server marked refusals of the caller's own mistakes as its errors, or lost the status
    of an abort with trailing metadata (opentelemetry-python-contrib #2065, #1756).
    """
    raised = StoreError(reason, "what was wrong", metadata={"id": "é"}, fields={"a.b": "is"}, retry_after_ms=1_500)
    store.failure = lambda: raised
    request = store_pb2.GetRequest(id="a")
    async with running(store) as bare, connected(bare.address) as bare_stub:
        with pytest.raises(grpc.aio.AioRpcError) as expected:
            await bare_stub.Get(request)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Get(request)
    assert wire(refused.value) == wire(expected.value)

    await wait_until(lambda: len(recorded.spans()) == 1)
    [span] = recorded.spans()
    assert told(span)["rpc.grpc.status_code"] == CODES[reason]
    assert (span.status.status_code is StatusCode.ERROR) == (NAMES[CODES[reason]] in FAULTS)
    assert not span.events, "a refusal is no exception of ours"
    verb = {("verb", "get"), ("outcome", raised.reason_name.lower())}
    assert recorded.values("jobwire.operations")[frozenset(verb)] == 2


async def test_f02_what_is_answered_in_the_place_of_a_handler_has_its_span_too(stub: Stub, recorded: Recorded) -> None:
    """As above (opentelemetry-python-contrib #2065), for an unserved method and a message that does not parse."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Get(store_pb2.GetRequest())
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await wait_until(lambda: len(recorded.spans()) == 1)
    assert recorded.spans()[0].status.status_code is StatusCode.UNSET


async def test_a_call_that_its_caller_leaves_ends_its_span(stub: Stub, store: Probe, recorded: Recorded) -> None:
    await stub.Create(create("a", "q"))
    call = stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)))
    late = stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)), timeout=0.2)
    await wait_until(lambda: store.watched == 2)
    call.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await late
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await wait_until(lambda: len(recorded.spans()) == 3)
    codes = [(told(span)["rpc.grpc.status_code"], span.status.status_code) for span in recorded.spans()[1:]]
    assert codes[0] == (grpc.StatusCode.CANCELLED.value[0], StatusCode.UNSET)
    # gRPC cancels it at its deadline, unless our own deadline, just after, comes first.
    assert codes[1] in [
        (grpc.StatusCode.CANCELLED.value[0], StatusCode.UNSET),
        (grpc.StatusCode.DEADLINE_EXCEEDED.value[0], StatusCode.ERROR),
    ]
    assert recorded.value("jobwire.operations", verb="get") == 2


async def test_f01_streams_end_in_every_way_without_a_span_or_a_word(
    store: Probe, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere an instrumented stream that was cancelled logged "Failed to detach context" each time, and its span
    never ended (opentelemetry-python-contrib #2357).
    """
    count = scaled(250)
    with caplog.at_level(logging.WARNING):
        async with (
            running(store, interceptors=[telemetry.interceptor()]) as server,
            grpc.aio.insecure_channel(server.address) as channel,
            connected(server.address) as stub,
        ):
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

            async def opened() -> Call:
                call = stub.ClaimStream(stream_request("q"))
                assert (await next_message(call)).HasField("opened")
                return call

            async def cancelled() -> None:
                (await opened()).cancel()

            async def out_of_time() -> None:
                # The deadline counts from before it is opened, and the machine may be busy.
                call = stub.ClaimStream(stream_request("q"), timeout=0.5)
                assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED

            async def refused() -> None:
                call = stub.ClaimStream(stream_request())
                assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT

            async def many(how: Callable[[], Awaitable[None]]) -> None:
                await asyncio.gather(*(how() for _ in range(count)))

            for how in (cancelled, out_of_time, refused):
                await many(how)
            read_out = await asyncio.gather(*(opened() for _ in range(count)))
            watching = asyncio.create_task(watch.read())
        for call in read_out:
            while await call.read() is not grpc.aio.EOF:
                pass
            assert await call.code() is grpc.StatusCode.OK
        watching.cancel()
        await asyncio.wait([watching])
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []
    assert "detach" not in caplog.text
    assert recorded.spans() == []
    # Of those with a deadline, a busy server may never have heard.
    assert count <= recorded.value("jobwire.operations", verb="claim_stream", outcome="cancelled") <= 2 * count
    assert recorded.value("jobwire.operations", verb="claim_stream", outcome="ok") == count
    assert recorded.value("jobwire.operations", verb="claim_stream", outcome="field_invalid") == count
