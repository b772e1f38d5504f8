"""Indexes and records: what is lost is passed over, what is over is gone, whole batches are sums of their items."""

from __future__ import annotations

import pytest
from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store import limits

from tests.conformance.backends import EngineBackend
from tests.conformance.bench import Bench
from tests.engines import Engine, kind_of
from tests.machine.damage import agrees, repair
from tests.requests import SUCCEEDED, claim, complete, create

from .scale import scaled


def batch(requests: list[store_pb2.CreateRequest]) -> store_pb2.BatchCreateRequest:
    return store_pb2.BatchCreateRequest(requests=requests)


async def settle_all(bench: Bench, claimed: list[store_pb2.ClaimedJob]) -> None:
    """Completes them all."""
    request = store_pb2.BatchSettleRequest()
    for job in claimed:
        request.settlements.add().complete.CopyFrom(complete(job))
    for result in (await bench.verbs.batch_settle(request)).results:
        assert result.HasField("complete")


async def test_b01_an_index_that_names_lost_and_expired_records_harms_nobody(bench: Bench) -> None:
    """One id in an index whose record had expired made whole listings and mass retries fail (rq #1963, rq-scheduler #4,
    romm #3195, arq #466, bullmq #1615). Here 50 of 1,000 records are lost, and 50 more expire during the listing.

    Admin.ListJobs and mass redrive join when those verbs exist.
    """
    await bench.add("p")
    ids = [f"p/{number:04}" for number in range(1_000)]
    short = dict.fromkeys(ids[500:550], 1)
    requests = [
        create(job_id, "short" if job_id in short else "q", parent_id="p", ttl=short.get(job_id, 3_600))
        for job_id in ids
    ]
    await bench.verbs.batch_create(batch(requests))
    await settle_all(bench, await bench.claim("short", max_jobs=50))
    lost = ids[100:900:16]
    assert len(lost) == 50
    lost = [job_id for job_id in lost if job_id not in short]
    await bench.lose(*lost)

    listed, token = list[str](), ""
    while True:
        request = store_pb2.ListChildrenRequest(parent_id="p", page_size=90, page_token=token)
        page = await bench.verbs.list_children(request)
        listed += [job.id for job in page.jobs]
        assert all(job.queue for job in page.jobs), "a job revived as a blank"
        if not page.next_page_token:
            break
        token = page.next_page_token
        bench.clock.advance(0.3)  # the jobs with a short ttl expire when about four pages were read
    rest = [job_id for job_id in ids if job_id not in lost and job_id not in short]
    assert listed == sorted(rest), "each child that stood throughout, once, in order"

    newest = (await bench.verbs.list_ids(store_pb2.ListIdsRequest(limit=1_000))).ids
    assert sorted(newest) == sorted([*rest, "p"])
    found = (await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=[*lost, *short]))).results
    assert not any(result.HasField("job") for result in found)

    delivered: list[str] = []
    while jobs := await bench.claim("q", max_jobs=70):
        delivered += [claimed.job.id for claimed in jobs]
        assert all(claimed.job.queue == "q" and claimed.job.parent_id == "p" for claimed in jobs)
        await settle_all(bench, jobs)
    assert sorted(delivered) == rest
    await repair(bench.store)
    stats = (await bench.store.get_queue(admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(queue="q")))).queue.stats
    assert (stats.ready, stats.scheduled, stats.running) == (0, 0, 0)
    assert await agrees(bench.store)
    bench.clock.advance(limits.YEAR_MS / 1_000)
    await bench.sweep()
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest(limit=1_000))).ids == []


async def test_b08_a_batch_heeds_the_given_ids(bench: Bench) -> None:
    """The path of a bulk add did not share the code of a single one and ignored the ids that were given, so repeats
    made duplicates (bullmq #458). Per item here, each as a Create of its own would be answered, and none half written.
    """
    for number in range(50):
        await bench.add(f"there{number}", "old")
    requests = [create(f"new{number}", "q", request_id="r", payload=b"%d" % number) for number in range(400)]
    for number in range(50):
        requests.insert(number * 8, create(f"there{number}", "q", request_id="r"))
        requests.append(create(f"new{number * 7}", "q", request_id="other"))
    requests[250] = create("bad\x00", "q")
    assert len(requests) == 500
    first = await bench.verbs.batch_create(batch(requests))

    seen: set[str] = set()
    for index, (request, result) in enumerate(zip(requests, first.results, strict=True)):
        if index == 250:
            assert result.error.reason == job_pb2.ERROR_REASON_FIELD_INVALID
        elif request.job_id.startswith("there") or request.job_id in seen:
            assert result.error.reason == job_pb2.ERROR_REASON_JOB_EXISTS
            assert result.error.metadata == {"id": request.job_id}
        else:
            assert (result.response.created, result.response.job.id) == (True, request.job_id)
            seen.add(request.job_id)
    # The answer was lost, and the caller sends it all again: its own jobs are recognised, and nothing is new.
    again = await bench.verbs.batch_create(batch(requests))
    assert again == first
    delivered = await bench.claim("q", max_jobs=1_000)
    assert sorted(claimed.job.id for claimed in delivered) == sorted(seen)
    assert all(claimed.job.payload == claimed.job.id.removeprefix("new").encode() for claimed in delivered)


async def test_b12_nothing_stays_of_what_is_over(bench: Bench, engine: Engine) -> None:
    """Completed entries never left the engine, and with them the memory of 761,000 dead ones in four days
    (safe-decoder-service PR 329, dramatiq #199). Many jobs here, of queues and workers that are never seen again: once
    their retention is over nothing is left of any of them.
    """
    count, queues = scaled(5_000 if bench.level == "store" else 1_000), 100
    before = await leftovers(bench, engine)
    requests = [
        create(
            f"j{number}",
            f"queue {number % queues}",
            tenant=f"t{number % 7}",
            priority=number % 3,
            ttl=60,
            labels={"n": f"{number}"},
        )
        for number in range(count)
    ]
    for number in range(0, count, 25):  # a key of its own instead of an id
        requests[number].job_id = ""
        requests[number].job.dedup.key = f"k{number}"
        requests[number].job.dedup.window.seconds = 60
    for start in range(0, count, limits.BATCH):
        await bench.verbs.batch_create(batch(requests[start : start + limits.BATCH]))
    delivered = 0
    for number in range(queues):
        worker = 0
        while jobs := await bench.claim(f"queue {number}", max_jobs=25, worker_id=f"worker {number}-{worker}"):
            delivered += len(jobs)
            worker += 1
            await settle_all(bench, jobs)
    assert delivered == count
    bench.clock.advance(60)
    await bench.sweep()
    assert await leftovers(bench, engine) == before
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == []
    assert (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues == []


async def leftovers(bench: Bench, engine: Engine) -> set[str]:
    """The kinds of keys that there are, but for claims' answers, which can be repeated for 10 s and then go, and the
    counter of places in line.
    """
    if not isinstance(bench.backend, EngineBackend):
        return set()
    passing = {"claimed", "alive", "waiters"}
    async with engine.client() as client:
        async for key in client.scan_iter(count=1_000):
            if kind_of(key) in passing:
                assert 0 < await client.pttl(key) <= limits.CLAIM_REPEATABLE_MS
    return await engine.kinds() - passing - {"seq"}


@pytest.mark.parametrize("bench", ["store"], indirect=True)
async def test_b12_memory_is_given_back(bench: Bench, engine: Engine) -> None:
    """The same reports (safe-decoder-service PR 329): what the engine holds in bytes, after a life of thousands."""
    bench.needs("engine")

    async def used() -> int:
        async with engine.client() as client:
            async for key in client.scan_iter("*claimed:*", count=1_000):
                await client.delete(key)
            info = await client.info("memory")
        return int(info["used_memory_dataset"])

    async def lives(count: int) -> None:
        for start in range(0, count, 500):
            requests = [create(f"j{number}", "q", ttl=60, payload=b"x" * 500) for number in range(start, start + 500)]
            await bench.verbs.batch_create(batch(requests))
            while jobs := (await bench.verbs.claim(claim("q", max_jobs=500))).jobs:
                await settle_all(bench, list(jobs))
        assert (await bench.job("j0")).status == SUCCEEDED
        full.append(await used())
        bench.clock.advance(60)
        await bench.sweep()

    full: list[int] = []
    await lives(500)  # scripts, buffers and the like are there afterwards
    empty = await used()
    await lives(scaled(5_000))
    grown, held = await used() - empty, full[-1] - empty
    assert held > 5_000_000, "the jobs were there"
    assert grown < held / 20
