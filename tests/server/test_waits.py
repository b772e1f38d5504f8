"""Get and Claim that wait."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.errors import store_error
from tests.requests import RUNNING, SUCCEEDED, claim, complete, create, seconds, update
from tests.server.probe import Probe, Stub, serving
from tests.wait import wait_until


async def waiting_get(stub: Stub, job_id: str, **fields: object) -> asyncio.Task[store_pb2.GetResponse]:
    """A Get on its way, after a call that came later has been answered."""
    request = store_pb2.GetRequest(id=job_id, wait=seconds(10), **fields)  # type: ignore[arg-type]
    task = asyncio.ensure_future(stub.Get(request))
    await stub.Exists(store_pb2.ExistsRequest(id=job_id))
    return task


@pytest.mark.parametrize("deaf", [False, True])
async def test_get_waits_for_the_end(store: Probe, deaf: bool) -> None:
    store.deaf = deaf
    async with serving(store) as stub, serving(store.beside()) as other:
        await stub.Create(create("a", "q"))
        waiting = await waiting_get(stub, "a", view=job_pb2.JOB_VIEW_FULL)
        [job] = (await stub.Claim(claim("q"))).jobs
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await other.Complete(complete(job, b"r"))
        ended = time.monotonic()
        answer = await waiting
        assert (answer.job.status, answer.job.result) == (SUCCEEDED, b"r")
        assert time.monotonic() - ended < (1.3 if deaf else 0.3)


async def test_get_waits_for_a_newer_version(stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    waiting = await waiting_get(stub, "a", after_version=1)
    await stub.Claim(claim("q"))
    assert ((await waiting).job.status, (await waiting).job.version) == (RUNNING, 2)
    at_once = await waiting_get(stub, "a", after_version=1)
    assert (await at_once).job.version == 2


async def test_get_answers_the_state_as_it_is_when_the_time_is_up(stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    began = time.monotonic()
    answer = await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(0.3)))
    assert 0.29 < time.monotonic() - began < 0.6
    assert answer.job.version == 1


async def test_get_of_an_ended_job_does_not_wait(stub: Stub) -> None:
    await stub.Create(create("a", status=SUCCEEDED))
    began = time.monotonic()
    await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(5)))
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("again", [False, True])
async def test_get_of_a_job_that_goes_while_it_waits(stub: Stub, again: bool) -> None:
    await stub.Create(create("a"))
    waiting = await waiting_get(stub, "a")
    deleting = asyncio.ensure_future(stub.Delete(store_pb2.DeleteRequest(id="a")))
    if again:
        # Both are on their way before the waiting call can look.
        await stub.Create(create("a", status=SUCCEEDED))
    await deleting
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_get_of_a_missing_job_does_not_wait(stub: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(5)), timeout=1)
    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_claim_waits_for_the_first_job(store: Probe) -> None:
    async with serving(store) as stub, serving(store.beside()) as other:
        waiting = asyncio.ensure_future(stub.Claim(claim("q", max_jobs=5, wait=seconds(10))))
        await stub.Exists(store_pb2.ExistsRequest(id="a"))
        await other.Create(create("a", "q"))
        created = time.monotonic()
        assert [job.job.id for job in (await waiting).jobs] == ["a"]
        assert time.monotonic() - created < 0.3


async def test_claim_answers_nothing_when_the_time_is_up(stub: Stub) -> None:
    began = time.monotonic()
    assert not (await stub.Claim(claim("q", wait=seconds(0.3)))).jobs
    assert 0.29 < time.monotonic() - began < 0.6
    assert not (await stub.Claim(claim("q"))).jobs


async def test_a_claim_sees_what_was_created_before_it() -> None:
    store = Probe(partitions=4)
    async with serving(store) as stub, serving(store.beside()) as other:
        for number in range(20):
            await other.Create(create(f"{number}", "q"))
            assert [job.job.id for job in (await stub.Claim(claim("q", wait=seconds(1)))).jobs] == [f"{number}"]
        for number in range(8):
            await other.Create(create(f"more-{number}", "q"))
        assert len((await stub.Claim(claim("q", max_jobs=8))).jobs) == 8


async def test_a_claim_tells_an_empty_queue_from_an_engine_that_is_down(store: Probe, stub: Stub) -> None:
    waiting = asyncio.ensure_future(stub.Claim(claim("q", wait=seconds(30))))
    await wait_until(lambda: store.claims == 2)
    store.go_down()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Claim(claim("q"))
    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    store.failure = None
    await stub.Create(create("a", "q"))
    assert len((await waiting).jobs) == 1


async def test_an_answer_holds_what_fits_and_the_rest_goes_back(stub: Stub) -> None:
    labels = {f"{number:064}": "v" * 256 for number in range(32)}
    for _ in range(3):
        requests = [create(queue="q", labels=labels) for _ in range(250)]
        await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=requests))
    seen: set[str] = set()
    while len(seen) < 750:
        jobs = (await stub.Claim(claim("q", max_jobs=1_000, wait=seconds(1)))).jobs
        assert jobs
        seen.update(job.job.id for job in jobs)


async def test_an_update_ends_a_wait(stub: Stub) -> None:
    await stub.Create(create("a"))
    waiting = await waiting_get(stub, "a")
    await stub.Update(update("a", status=SUCCEEDED, result=b"done"))
    assert (await waiting).job.status == SUCCEEDED
