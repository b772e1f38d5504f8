"""An id that names no job (never did, has expired, or lost its record), on every verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import complete, create, fail, heartbeat, release, update

from .bench import Bench, refusal


async def never(bench: Bench) -> None:
    """There was never such a job."""


async def expired(bench: Bench) -> None:
    await bench.add("x", ttl=5)
    bench.clock.advance(5)


async def deleted(bench: Bench) -> None:
    await bench.add("x", "q")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="x"))


async def vanished(bench: Bench) -> None:
    await bench.add("x", "q")
    await bench.lose("x")


@pytest.mark.parametrize("begin", [never, expired, deleted, vanished], ids=lambda begin: begin.__name__)
async def test_every_verb_says_so(bench: Bench, begin: Callable[[Bench], Awaitable[None]]) -> None:
    await begin(bench)
    lease = store_pb2.ClaimedJob(job=job_pb2.Job(namespace="default", id="x"), lease_token="token")
    for call in (
        bench.verbs.get(store_pb2.GetRequest(id="x")),
        bench.verbs.update(update("x", labels={"a": "b"})),
        bench.verbs.cancel(store_pb2.CancelRequest(id="x")),
        bench.verbs.complete(complete(lease)),
        bench.verbs.fail(fail(lease)),
        bench.verbs.release(release(lease)),
    ):
        error = await refusal(call)
        assert error.reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
        assert "'x'" in error.message
    error = await refusal(bench.verbs.create(create("x/a", parent_id="x")))
    assert error.reason == job_pb2.ERROR_REASON_PARENT_NOT_FOUND
    assert not await bench.exists("x")
    assert not (await bench.verbs.delete(store_pb2.DeleteRequest(id="x"))).existed
    [found] = (await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=["x"]))).results
    assert not found.HasField("job")
    [beat] = (await bench.verbs.heartbeat(heartbeat(lease))).results
    assert beat.state == store_pb2.LEASE_STATE_LOST
    settlements = store_pb2.BatchSettleRequest(settlements=[store_pb2.Settlement(complete=complete(lease))])
    [settled] = (await bench.verbs.batch_settle(settlements)).results
    assert settled.error.reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
    assert not (await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="x"))).jobs
    assert not (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids
    assert await bench.claim("q") == []
    assert not await bench.exists("x")  # none of it made a blank job
