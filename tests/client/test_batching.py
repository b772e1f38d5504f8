"""Natural batching: what comes while a call is in flight goes out together as the next."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import jobwire
import pytest
from google.protobuf.message import Message
from jobwire._batching import chunks
from jobwire._limits import BATCH, BATCH_BYTES
from jobwire.v1 import job_pb2, store_pb2

from tests.client.scripted import Scripted, abort, create_all, create_one, created, serving
from tests.wait import wait_until


class Gate:
    """A Create that waits until the test opens it."""

    def __init__(self, scripted: Scripted) -> None:
        self.open = asyncio.Event()
        scripted.script["Create"] = self.create
        scripted.script["BatchCreate"] = create_all

    async def create(self, request: store_pb2.CreateRequest, context: Any) -> store_pb2.CreateResponse:
        await self.open.wait()
        return created(request)


def start(client: jobwire.Client, count: int, prefix: str = "job") -> list[asyncio.Task[jobwire.Job]]:
    return [asyncio.create_task(client.create(ttl=60, job_id=f"{prefix}{index}")) for index in range(count)]


async def test_a_lone_create_goes_as_itself(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    scripted.script["Create"] = create_one
    await scripted_client.create(ttl=60, job_id="a")
    await scripted_client.create(ttl=60, job_id="b")
    assert [request.job_id for request in scripted.of("Create")] == ["a", "b"]


async def test_what_comes_meanwhile_goes_out_together(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    gate = Gate(scripted)
    first = start(scripted_client, 1, "first")
    await wait_until(lambda: bool(scripted.of("Create")))
    rest = start(scripted_client, 2_500)
    await asyncio.sleep(0)
    gate.open.set()
    jobs = await asyncio.gather(*first, *rest)
    assert [job.id for job in jobs] == ["first0", *(f"job{index}" for index in range(2_500))]
    assert [len(request.requests) for request in scripted.of("BatchCreate")] == [1_000, 1_000, 500]


async def test_one_who_gives_up_does_no_harm(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    gate = Gate(scripted)
    in_flight = start(scripted_client, 1, "first")
    await wait_until(lambda: bool(scripted.of("Create")))
    rest = start(scripted_client, 3)
    await asyncio.sleep(0)
    in_flight[0].cancel()
    rest[1].cancel()
    await asyncio.gather(in_flight[0], rest[1], return_exceptions=True)
    gate.open.set()
    assert [job.id for job in await asyncio.gather(rest[0], rest[2])] == ["job0", "job2"]
    [batch] = scripted.of("BatchCreate")
    assert [request.job_id for request in batch.requests] == ["job0", "job2"]


async def test_each_item_has_its_own_error(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def refuse_odd(request: store_pb2.BatchCreateRequest, context: Any) -> store_pb2.BatchCreateResponse:
        error = store_pb2.ItemError(code=6, message="taken", reason=job_pb2.ERROR_REASON_JOB_EXISTS)
        return store_pb2.BatchCreateResponse(
            results=[
                store_pb2.BatchCreateResult(error=error)
                if index % 2
                else store_pb2.BatchCreateResult(response=created(item))
                for index, item in enumerate(request.requests)
            ]
        )

    scripted.script["BatchCreate"] = refuse_odd
    outcomes = await asyncio.gather(*start(scripted_client, 4), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [jobwire.Job, jobwire.AlreadyExists] * 2


async def test_an_unavailable_item_is_repeated_alone(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def lose_the_last(request: store_pb2.BatchCreateRequest, context: Any) -> store_pb2.BatchCreateResponse:
        answer = await create_all(request, context)
        error = store_pb2.ItemError(code=14, message="away", reason=job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE)
        answer.results[-1].error.CopyFrom(error)
        return answer

    scripted.script["BatchCreate"] = lose_the_last
    scripted.script["Create"] = create_one
    jobs = await asyncio.gather(*start(scripted_client, 3))
    assert [job.id for job in jobs] == ["job0", "job1", "job2"]
    assert [request.job_id for request in scripted.of("Create")] == ["job2"]


async def test_a_failed_call_fails_all_of_its_items(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def refuse(request: Message, context: Any) -> None:
        await abort(context, grpc.StatusCode.PERMISSION_DENIED, "no")

    scripted.script["BatchCreate"] = refuse
    outcomes = await asyncio.gather(*start(scripted_client, 3), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {jobwire.PermissionDenied}
    assert len({id(outcome) for outcome in outcomes}) == 3


async def test_settlements_go_out_together(scripted: Scripted, scripted_client: jobwire.Client) -> None:
    async def settle(request: store_pb2.BatchSettleRequest, context: Any) -> store_pb2.BatchSettleResponse:
        return store_pb2.BatchSettleResponse(
            results=[
                store_pb2.SettlementResult(complete=store_pb2.CompleteResponse()),
                store_pb2.SettlementResult(fail=store_pb2.FailResponse(status=job_pb2.JOB_STATUS_FAILED)),
                store_pb2.SettlementResult(
                    error=store_pb2.ItemError(code=9, reason=job_pb2.ERROR_REASON_LEASE_LOST, message="lost")
                ),
            ]
        )

    scripted.script["BatchSettle"] = settle
    lease = jobwire.LeaseRef(id="a", token="t")
    completed, failed, released = await asyncio.gather(
        scripted_client.complete(lease, "done"),
        scripted_client.fail(lease, "broken", retryable=False),
        scripted_client.release(lease, delay=1),
        return_exceptions=True,
    )
    assert isinstance(completed, store_pb2.CompleteResponse)
    assert isinstance(failed, store_pb2.FailResponse)
    assert isinstance(released, jobwire.LeaseLost)
    [request] = scripted.of("BatchSettle")
    assert [item.WhichOneof("verb") for item in request.settlements] == ["complete", "fail", "release"]


async def test_a_caller_waits_no_longer_than_the_timeout(scripted: Scripted) -> None:
    Gate(scripted)
    async with serving(scripted) as address, jobwire.connect(address, timeout=0.2) as client:
        with pytest.raises(jobwire.DeadlineExceeded):
            await client.create(ttl=60)


async def test_closing_the_client_fails_who_waits(scripted: Scripted) -> None:
    Gate(scripted)
    async with serving(scripted) as address:
        client = jobwire.connect(address)
        waiting = start(client, 1)
        await wait_until(lambda: bool(scripted.of("Create")))
        await client.close()
        with pytest.raises(jobwire.JobwireError):
            await waiting[0]


def test_chunks_fit_a_call() -> None:
    small = [store_pb2.CreateRequest(job_id=str(index)) for index in range(BATCH + 1)]
    assert [len(chunk) for chunk in chunks(small)] == [BATCH, 1]
    large = [store_pb2.CreateRequest(job=jobwire.Job(payload=bytes(BATCH_BYTES // 2))) for _ in range(3)]
    assert [len(chunk) for chunk in chunks(large)] == [1, 1, 1]
    assert list(chunks([])) == []
