"""Get and Claim that wait."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.errors import store_error
from tests.requests import MANY_LABELS, RUNNING, SUCCEEDED, claim, complete, create, seconds, update
from tests.server.probe import Probe, Stub, Views, serving
from tests.wait import wait_until


async def waiting_get(store: Probe, stub: Stub, job_id: str, **fields: object) -> asyncio.Task[store_pb2.GetResponse]:
    """A Get that has read the job and waits."""
    reads = store.watched
    request = store_pb2.GetRequest(id=job_id, wait=seconds(60), **fields)  # type: ignore[arg-type]
    task = asyncio.ensure_future(stub.Get(request))
    await wait_until(lambda: store.watched > reads)
    return task


@pytest.mark.parametrize("deaf", [False, True])
async def test_get_waits_for_the_end(store: Probe, deaf: bool, request: pytest.FixtureRequest) -> None:
    store.deaf = deaf
    if not deaf:
        request.getfixturevalue("no_looks")
    async with serving(store) as stub, serving(store.beside()) as other:
        await stub.Create(create("a", "q"))
        waiting = await waiting_get(store, stub, "a", view=job_pb2.JOB_VIEW_FULL)
        reads = store.watched
        [job] = (await stub.Claim(claim("q"))).jobs
        # It has seen the job running, by a notice or by a look, and waits on.
        await wait_until(lambda: store.watched > reads)
        assert not waiting.done()
        await other.Complete(complete(job, b"r"))
        answer = await waiting
        assert (answer.job.status, answer.job.result) == (SUCCEEDED, b"r")


@pytest.mark.usefixtures("no_looks")
async def test_get_waits_for_a_newer_version(store: Probe, stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    waiting = await waiting_get(store, stub, "a", after_version=1)
    await stub.Claim(claim("q"))
    assert ((await waiting).job.status, (await waiting).job.version) == (RUNNING, 2)
    at_once = await waiting_get(store, stub, "a", after_version=1)
    assert (await at_once).job.version == 2


async def test_get_answers_the_state_as_it_is_when_the_time_is_up(stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    began = time.monotonic()
    answer = await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(0.3)))
    assert time.monotonic() - began > 0.29
    assert answer.job.version == 1


async def test_get_of_an_ended_job_does_not_wait(stub: Stub) -> None:
    await stub.Create(create("a", status=SUCCEEDED))
    await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)), timeout=20)


@pytest.mark.parametrize("again", [False, True])
async def test_get_of_a_job_that_goes_while_it_waits(store: Probe, stub: Stub, again: bool) -> None:
    await stub.Create(create("a"))
    waiting = await waiting_get(store, stub, "a")
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
        await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)), timeout=20)
    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


@pytest.mark.usefixtures("no_looks")
async def test_claim_waits_for_the_first_job(store: Probe, views: Views) -> None:
    async with serving(store) as stub, serving(store.beside()) as other:
        waiting = asyncio.ensure_future(stub.Claim(claim("q", max_jobs=5, wait=seconds(60))))
        await views.idle(1)
        await other.Create(create("a", "q"))
        assert [job.job.id for job in (await waiting).jobs] == ["a"]


async def test_claim_answers_nothing_when_the_time_is_up(stub: Stub) -> None:
    began = time.monotonic()
    assert not (await stub.Claim(claim("q", wait=seconds(0.3)))).jobs
    assert time.monotonic() - began > 0.29
    assert not (await stub.Claim(claim("q"))).jobs


async def test_a_claim_sees_what_was_created_before_it() -> None:
    store = Probe(partitions=4)
    async with serving(store) as stub, serving(store.beside()) as other:
        for number in range(20):
            await other.Create(create(f"{number}", "q"))
            assert [job.job.id for job in (await stub.Claim(claim("q", wait=seconds(60)))).jobs] == [f"{number}"]
        for number in range(8):
            await other.Create(create(f"more-{number}", "q"))
        assert len((await stub.Claim(claim("q", max_jobs=8))).jobs) == 8


async def test_a_claim_tells_an_empty_queue_from_an_engine_that_is_down(store: Probe, stub: Stub, views: Views) -> None:
    waiting = asyncio.ensure_future(stub.Claim(claim("q", wait=seconds(60))))
    await views.idle(1)
    store.go_down()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Claim(claim("q"))
    assert store_error(caught.value).reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    store.failure = None
    await stub.Create(create("a", "q"))
    assert len((await waiting).jobs) == 1


async def test_an_answer_holds_what_fits_and_the_rest_goes_back(stub: Stub) -> None:
    for _ in range(3):
        requests = [create(queue="q", labels=MANY_LABELS) for _ in range(250)]
        await stub.BatchCreate(store_pb2.BatchCreateRequest(requests=requests))
    seen: set[str] = set()
    while len(seen) < 750:
        jobs = (await stub.Claim(claim("q", max_jobs=1_000, wait=seconds(60)))).jobs
        assert jobs
        seen.update(job.job.id for job in jobs)


@pytest.mark.usefixtures("no_looks")
async def test_an_update_ends_a_wait(store: Probe, stub: Stub) -> None:
    await stub.Create(create("a"))
    waiting = await waiting_get(store, stub, "a")
    await stub.Update(update("a", status=SUCCEEDED, result=b"done"))
    assert (await waiting).job.status == SUCCEEDED
