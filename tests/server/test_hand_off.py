"""Jobs that go from their Create to an idle stream in one step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.dispatch.dispatch import Dispatch
from jobwire_server.store.errors import StoreError

from tests.errors import store_error
from tests.requests import PENDING, RUNNING, claim, complete, create, seconds
from tests.server.probe import Probe, Reading, Stub, Views, next_jobs, stream_request, streaming
from tests.server.test_undelivered import cancel, given_back
from tests.wait import wait_until


class Inbox:
    """A stream on "q" without gRPC, and what it was sent. While `gate` is closed, it does not read."""

    def __init__(self, dispatch: Dispatch, request: store_pb2.ClaimStreamRequest) -> None:
        self.messages: list[store_pb2.ClaimStreamResponse] = []
        self.writing = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.task = asyncio.create_task(dispatch.claim_stream(request, self._write))

    @property
    def jobs(self) -> list[store_pb2.ClaimedJob]:
        return [job for message in self.messages for job in message.jobs.jobs]

    async def _write(self, message: store_pb2.ClaimStreamResponse) -> None:
        self.writing += 1
        await self.gate.wait()
        self.messages.append(message)


@contextlib.asynccontextmanager
async def inbox(dispatch: Dispatch, *queues: str, **fields: object) -> AsyncIterator[Inbox]:
    found = Inbox(dispatch, stream_request(*queues, **fields))  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.task.cancel()
        await asyncio.wait([found.task])


async def statuses(store: Probe, *ids: str) -> list[int]:
    return [(await store.get(store_pb2.GetRequest(id=job_id))).job.status for job_id in ids]


async def test_a_create_goes_to_an_idle_stream_in_one_step(store: Probe, stub: Stub, views: Views) -> None:
    async with streaming(stub, "q") as call:
        await views.idle(1)
        claims, handed = store.claims, store.handed
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)
        assert (job.job.id, job.job.attempt) == ("a", 1)
        assert (store.claims - claims, store.handed - handed) == (1, 1)


async def test_a_delayed_job_and_one_without_an_idle_stream_are_not_handed_off(
    store: Probe, stub: Stub, views: Views
) -> None:
    async with streaming(stub, "q") as call:
        await views.idle(1)
        await stub.Create(create("a", "q", delay=60))
        await stub.Create(create("b", "other"))
        assert store.handed == 0
        await stub.Create(create("c", "q"))
        [job] = await next_jobs(call)
        await stub.Create(create("d", "q"))  # the stream has no credit left
        assert store.handed == 1
        await stub.Complete(complete(job))
        [job] = await next_jobs(call)
        assert job.job.id == "d"


async def test_a_create_that_is_refused_is_told_so_though_a_stream_is_idle(stub: Stub, views: Views) -> None:
    await stub.Create(create("a"))
    async with streaming(stub, "q") as call:
        await views.idle(1)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Create(create("a", "q"))
        assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS
        await stub.Create(create("b", "q"))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


@pytest.mark.usefixtures("no_looks")
async def test_what_a_refused_create_leaves_behind_wakes_the_next(store: Probe, stub: Stub, views: Views) -> None:
    store.deaf = True
    await stub.Create(create("a"))
    async with streaming(stub, "q") as one, streaming(stub, "q") as two:
        await views.idle(2)
        for job_id in ("b", "c"):
            await store.beside().create(create(job_id, "q"))  # of which nobody here hears
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Create(create("a", "q"))
        [first], [second] = await next_jobs(one), await next_jobs(two)
        assert {first.job.id, second.job.id} == {"b", "c"}


async def test_an_invalid_create_leaves_the_stream_idle(stub: Stub, views: Views) -> None:
    async with streaming(stub, "q") as call:
        await views.idle(1)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Create(create("a", "q", max_attempts=-1))
        assert store_error(refused.value).reason == job_pb2.ERROR_REASON_FIELD_INVALID
        await views.idle(1)
        await stub.Create(create("b", "q"))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


async def test_an_engine_that_goes_away_during_the_hand_off_ends_no_stream(
    store: Probe, stub: Stub, views: Views
) -> None:
    async with streaming(stub, "q") as call:
        await views.idle(1)
        store.go_down()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Create(create("a", "q"))
        assert store_error(refused.value).reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
        store.failure = None
        await views.idle(1)
        await stub.Create(create("b", "q"))
        assert [job.job.id for job in await next_jobs(call)] == ["b"]


async def test_a_stream_that_ends_during_the_hand_off_gives_the_job_back(
    store: Probe, stub: Stub, views: Views
) -> None:
    async with streaming(stub, "q") as call:
        await views.idle(1)
        store.gate.clear()
        creating = stub.Create(create("a", "q"))
        await wait_until(lambda: store.handed == 1)
        await cancel(stub, call)
        store.gate.set()
        assert (await creating).created
        await given_back(store, "a")


async def test_a_waiting_call_whose_time_is_up_during_the_hand_off_gives_the_job_back(
    store: Probe, stub: Stub, views: Views
) -> None:
    waiting = asyncio.ensure_future(stub.Claim(claim("q", wait=seconds(0.5))))
    await views.idle(1)
    store.gate.clear()
    creating = stub.Create(create("a", "q"))
    await wait_until(lambda: store.handed == 1)
    assert not (await waiting).jobs
    store.gate.set()
    assert (await creating).created
    await given_back(store, "a")


async def test_a_create_whose_caller_went_leaves_its_job_to_the_stream(
    store: Probe, dispatch: Dispatch, views: Views
) -> None:
    async with inbox(dispatch, "q") as stream:
        await views.idle(1)
        store.gate.clear()
        creating = asyncio.create_task(dispatch.create(create("a", "q")))
        await wait_until(lambda: store.handed == 1)
        creating.cancel()
        await asyncio.wait([creating])
        store.gate.set()
        await wait_until(lambda: [job.job.id for job in stream.jobs] == ["a"])


async def test_creates_at_the_same_instant_do_not_overfill_a_stream(
    store: Probe, dispatch: Dispatch, views: Views
) -> None:
    async with inbox(dispatch, "q") as stream:
        await views.idle(1)
        await asyncio.gather(*(dispatch.create(create(job_id, "q")) for job_id in "abc"))
        assert store.handed == 1
        await wait_until(lambda: len(stream.jobs) == 1)
        await views.idle(0)
        assert sorted(await statuses(store, *"abc")) == [PENDING, PENDING, RUNNING]


async def test_credit_that_comes_back_during_the_hand_off_is_not_spent_twice(
    store: Probe, stub: Stub, views: Views
) -> None:
    other = store.beside()
    async with streaming(stub, "q", max_in_flight=2) as call:
        reading = Reading(call)
        await stub.Create(create("x", "q"))
        await wait_until(lambda: len(reading.jobs) == 1)
        await views.idle(1)
        store.gate.clear()
        creating = stub.Create(create("a", "q"))
        await wait_until(lambda: store.handed == 2)
        for job_id in ("b", "c"):
            await other.create(create(job_id, "q"))
        claims = store.claims
        await stub.Complete(complete(reading.jobs[0]))
        await wait_until(lambda: store.claims > claims)  # for the credit of "x" alone: "a" has the other
        store.gate.set()
        await creating
        await wait_until(lambda: len(reading.jobs) == 3)
        assert sorted(await statuses(store, *"abc")) == [PENDING, RUNNING, RUNNING]
        await reading.stop()


async def test_a_notice_during_the_hand_off_is_not_forgotten(store: Probe, stub: Stub, views: Views) -> None:
    other = store.beside()
    async with streaming(stub, "q", max_in_flight=2) as call:
        reading = Reading(call)
        await views.idle(1)
        store.gate.clear()
        creating = stub.Create(create("a", "q"))
        await wait_until(lambda: store.handed == 1)
        await other.create(create("b", "q"))
        await stub.Exists(store_pb2.ExistsRequest(id="b"))
        store.gate.set()
        await creating
        await wait_until(lambda: len(reading.jobs) == 2)
        await reading.stop()


async def test_a_drain_during_the_hand_off_gives_the_job_back(store: Probe, dispatch: Dispatch, views: Views) -> None:
    async with inbox(dispatch, "q") as stream:
        await views.idle(1)
        store.gate.clear()
        creating = asyncio.create_task(dispatch.create(create("a", "q")))
        await wait_until(lambda: store.handed == 1)
        dispatch.drain()
        await asyncio.wait([stream.task])
        assert stream.messages[-1].HasField("drain")
        store.gate.set()
        assert (await creating).created
        await given_back(store, "a")


async def test_a_stream_that_drains_is_handed_nothing(store: Probe, dispatch: Dispatch, views: Views) -> None:
    async with inbox(dispatch, "q") as stream:
        await views.idle(1)
        stream.gate.clear()
        dispatch.drain()
        await wait_until(lambda: stream.writing == 2)
        assert (await dispatch.create(create("a", "q"))).created
        assert store.handed == 0
        with pytest.raises(StoreError):
            await dispatch.claim(claim("q"))
        stream.gate.set()
        await asyncio.wait([stream.task])


async def test_a_drain_while_a_request_to_stop_is_written_is_heard(
    store: Probe, dispatch: Dispatch, views: Views
) -> None:
    async with inbox(dispatch, "q", max_in_flight=2) as stream:
        await views.idle(1)
        await dispatch.create(create("a", "q"))
        await wait_until(lambda: len(stream.jobs) == 1)
        await views.idle(1)
        stream.gate.clear()
        await dispatch.cancel(store_pb2.CancelRequest(id="a"))
        await wait_until(lambda: stream.writing == 3)  # opened, the job, the request
        dispatch.drain()
        stream.gate.set()
        async with asyncio.timeout(15):  # its next keepalive would end the sleep
            await asyncio.wait([stream.task])
        assert [message.WhichOneof("event") for message in stream.messages[-2:]] == ["cancel", "drain"]


async def test_a_stream_superseded_while_it_claims_gives_back(store: Probe, dispatch: Dispatch, views: Views) -> None:
    await store.create(create("a", "q"))
    store.gate.clear()
    async with (
        inbox(dispatch, "q", session_id="s", epoch=1) as old,
        inbox(dispatch, "other", session_id="s", epoch=2) as new,
    ):
        await wait_until(lambda: store.claims == 2)
        store.gate.set()
        await asyncio.wait([old.task])
        error = old.task.exception()
        assert isinstance(error, StoreError)
        assert error.reason == job_pb2.ERROR_REASON_STREAM_SUPERSEDED
        assert old.jobs == new.jobs == []
        await given_back(store, "a")
