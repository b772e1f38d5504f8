"""An engine that is down is not an empty one."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import claim, create

from .bench import Bench, refusal


async def test_down_differs_from_empty(bench: Bench) -> None:
    bench.needs("engine")
    assert (await bench.verbs.claim(claim("q"))).jobs == []
    assert not await bench.exists("a")
    with bench.backend.engine_down():
        for call in (
            bench.verbs.claim(claim("q")),
            bench.verbs.exists(store_pb2.ExistsRequest(id="a")),
            bench.verbs.list_ids(store_pb2.ListIdsRequest()),
            bench.verbs.create(create("a", "q")),
        ):
            error = await refusal(call)
            assert error.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    assert (await bench.verbs.claim(claim("q"))).jobs == []
    assert (await bench.verbs.create(create("a", "q"))).created
