"""The error funnel: every error has a code and details, and none of ours is INTERNAL or UNKNOWN."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from jobwire.v1 import admin_pb2, admin_pb2_grpc, job_pb2, store_pb2
from jobwire_server.app import running
from jobwire_server.rpc import calls
from jobwire_server.rpc.errors import FIELDS_MAX
from jobwire_server.store.errors import CODES, StoreError

from tests.errors import store_error
from tests.requests import claim, create, seconds
from tests.server.probe import Probe, Stub, next_jobs, serving, streaming
from tests.wait import wait_until

GET = store_pb2.GetRequest(id="a")


@pytest.fixture
async def channel(store: Probe) -> AsyncIterator[grpc.aio.Channel]:
    """To a server around `store`."""
    async with running(store) as server, grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    """What a call was answered."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("reason", CODES)
async def test_every_reason_has_its_code_and_details(
    store: Probe, stub: Stub, reason: job_pb2.ErrorReason.ValueType
) -> None:
    raised = StoreError(reason, "what was wrong", metadata={"id": "é"}, fields={"a.b": "is"}, retry_after_ms=1_500)
    store.failure = lambda: raised
    found = store_error(await refused(stub.Get(GET)))
    assert (found.reason, found.message, found.metadata) == (reason, "what was wrong", {"id": "é"})
    assert (found.fields, found.retry_after_ms) == ({"a.b": "is"}, 1_500)
    assert found.code not in (grpc.StatusCode.INTERNAL.value[0], grpc.StatusCode.UNKNOWN.value[0])


async def test_a_long_error_fits_the_trailers(store: Probe, stub: Stub) -> None:
    fields = {f"requests[{number}].job.labels": "is much too long, " * 5 for number in range(1_000)}
    raised = StoreError(job_pb2.ERROR_REASON_FIELD_INVALID, "ü" * 5_000, fields=fields)
    store.failure = lambda: raised
    error = await refused(stub.Get(GET))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len((error.details() or "").encode()) <= 1_024
    trailers = dict(error.trailing_metadata() or ())
    assert len(trailers["grpc-status-details-bin"]) < 4_000
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.message == error.details()
    request = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(request)
    assert 1 < len(request.field_violations) <= FIELDS_MAX


@pytest.mark.parametrize("bug", [RuntimeError("secret"), KeyError("k"), asyncio.CancelledError()])
async def test_what_nobody_foresaw_is_unavailable(store: Probe, stub: Stub, bug: BaseException) -> None:
    store.failure = lambda: bug
    error = await refused(stub.Get(GET, timeout=5))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "secret" not in (error.details() or "")
    store_error(error)
    store.failure = None
    await stub.Create(create("a"))


async def test_a_bug_ends_the_stream_that_met_it_with_a_status(store: Probe) -> None:
    async with serving(store) as stub, serving(store.beside()) as other, streaming(stub, "q") as call:
        await wait_until(lambda: store.claims == 1)
        store.failure = lambda: RuntimeError("secret")
        await other.Create(create("a", "q"))
        error = await refused(call.read())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        store_error(error)


async def test_idle_streams_and_timers_outlive_a_bug(store: Probe, stub: Stub) -> None:
    async with streaming(stub, "q") as call:
        await wait_until(lambda: store.claims == 1)
        store.failure = lambda: RuntimeError("a bug")
        await wait_until(lambda: store.failures >= 3)
        store.failure = None
        await stub.Create(create("a", "q", delay=0.2))
        assert [job.job.id for job in await next_jobs(call)] == ["a"]


async def test_verbs_that_are_not_served_say_so(channel: grpc.aio.Channel) -> None:
    served = {"ListQueues", "GetQueue"}
    for file in (admin_pb2.DESCRIPTOR, store_pb2.DESCRIPTOR):
        [service] = file.services_by_name.values()
        for method in service.methods:
            if service.name == "Admin" and method.name in served:
                continue
            if service.name == "Store" and method.name not in ("Report", "Watch"):
                continue
            path = f"/{service.full_name}/{method.name}"
            raw: Any = channel
            call = raw.unary_stream(path)(b"").read() if method.server_streaming else raw.unary_unary(path)(b"")
            error = await refused(call)
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED
            assert store_error(error).reason == job_pb2.ERROR_REASON_NOT_SERVED
            assert method.name in (error.details() or "")


async def test_admin_is_served(channel: grpc.aio.Channel, store: Probe) -> None:
    await store.create(create("a", "q"))
    stub: admin_pb2_grpc.AdminAsyncStub = admin_pb2_grpc.AdminStub(channel)
    [queue] = (await stub.ListQueues(admin_pb2.ListQueuesRequest())).queues
    assert (queue.ref.queue, queue.stats.ready) == ("q", 1)
    ref = store_pb2.QueueRef(queue="q")
    assert (await stub.GetQueue(admin_pb2.GetQueueRequest(ref=ref))).queue.stats.ready == 1


async def test_e19_the_server_has_a_deadline_of_its_own(
    store: Probe, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.2)
    store.gate.clear()
    began = time.monotonic()
    error = await refused(stub.Claim(claim("q")))
    assert time.monotonic() - began >= 0.2
    assert store_error(error).reason == job_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    began = time.monotonic()
    await refused(stub.Claim(claim("q", wait=seconds(0.5))))
    assert time.monotonic() - began >= 0.7
    store.gate.set()


async def test_e19_a_handler_ends_at_its_callers_deadline(store: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def hang(request: store_pb2.ExistsRequest) -> store_pb2.ExistsResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("unreachable")

    monkeypatch.setattr(store, "exists", hang)
    async with serving(store) as stub:
        error = await refused(stub.Exists(store_pb2.ExistsRequest(id="a"), timeout=0.3))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await wait_until(ended.is_set, calls.CALL_SECONDS / 2)


async def test_one_call_too_many_is_refused_at_once(store: Probe) -> None:
    async with serving(store, max_calls=1, max_streams=1) as stub:
        store.gate.clear()
        hanging = asyncio.ensure_future(stub.Claim(claim("q")))
        await wait_until(lambda: store.claims == 1)
        found = store_error(await refused(stub.Get(GET)))
        assert found.reason == job_pb2.ERROR_REASON_OVERLOADED
        assert found.retry_after_ms > 0
        store.gate.set()
        await hanging
        async with streaming(stub, "q"):
            found = store_error(await refused(stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)))))
            assert found.reason == job_pb2.ERROR_REASON_OVERLOADED
            assert store_error(await refused(stub.Get(GET))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_an_answer_too_large_is_refused_with_details(store: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    # The store's answers fit; should one ever not, its caller must not see gRPC's own words.
    answer = store_pb2.BatchGetResponse(results=[store_pb2.BatchGetResult(id="x" * 1_000)] * 5_000)

    async def batch_get(request: store_pb2.BatchGetRequest) -> store_pb2.BatchGetResponse:
        return answer

    monkeypatch.setattr(store, "batch_get", batch_get)
    async with serving(store) as stub:
        found = store_error(await refused(stub.BatchGet(store_pb2.BatchGetRequest(ids=["a"]))))
    assert found.reason == job_pb2.ERROR_REASON_ANSWER_TOO_LARGE
