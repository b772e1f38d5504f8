from __future__ import annotations

from jobwire.v1 import store_pb2

from tests.requests import complete

from .bench import Bench, refusal


async def test_exists_until_deleted_or_expired(bench: Bench) -> None:
    assert not await bench.exists("a")
    await bench.add("a")
    await bench.add("b", ttl=5)
    await bench.add("c", "q", ttl=5)
    assert await bench.exists("a")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="a"))
    assert not await bench.exists("a")
    bench.clock.advance(5)
    assert not await bench.exists("b")
    assert await bench.exists("c")  # with a queue: retention starts at the end
    await bench.verbs.complete(complete(await bench.take("q")))
    bench.clock.advance(5)
    assert not await bench.exists("c")


async def test_namespaces_are_apart(bench: Bench) -> None:
    await bench.add("a", namespace="n")
    assert not await bench.exists("a")
    assert (await bench.verbs.exists(store_pb2.ExistsRequest(namespace="n", id="a"))).exists


async def test_id_is_checked(bench: Bench) -> None:
    for job_id in ("", "a//b", "\x00", "x" * 257):
        error = await refusal(bench.verbs.exists(store_pb2.ExistsRequest(id=job_id)))
        assert list(error.fields) == ["id"]
