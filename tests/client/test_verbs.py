"""Every verb of both clients against a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import jobwire
import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.wait import wait_until


async def test_create_and_get(client: jobwire.Client) -> None:
    job = await client.create(queue="q", kind="k", payload="grüße", ttl=timedelta(hours=1), labels={"a": "b"})
    assert job.status == jobwire.JobStatus.JOB_STATUS_PENDING
    assert (await client.get(job.id)).payload == b""
    full = await client.get(job.id, full=True)
    assert full.payload == "grüße".encode()
    assert dict(full.labels) == {"a": "b"}
    with pytest.raises(jobwire.NotFound):
        await client.get("nothing")


async def test_create_tells_what_is_wrong(client: jobwire.Client) -> None:
    with pytest.raises(jobwire.InvalidArgument) as invalid:
        await client.create(ttl=0, priority=101)
    assert set(invalid.value.fields) == {"job.ttl", "job.priority"}
    await client.create(ttl=60, job_id="taken")
    with pytest.raises(jobwire.AlreadyExists) as exists:
        await client.create(ttl=60, job_id="taken")
    assert exists.value.job_id == "taken"
    unserved = jobwire.new_job(queue="q", ttl=60)
    unserved.job.children.wait = True
    with pytest.raises(jobwire.Unimplemented):
        await client.create_from(unserved)


async def test_dedup(client: jobwire.Client) -> None:
    first = await client.create_from(jobwire.new_job(queue="q", ttl=60, dedup_key="k"))
    again = await client.create_from(jobwire.new_job(queue="q", ttl=60, dedup_key="k"))
    assert (first.created, again.created) == (True, False)
    assert first.job.id == again.job.id


async def test_many_at_once(client: jobwire.Client) -> None:
    requests = [jobwire.new_job(queue="q", ttl=60, job_id=f"job{index}") for index in range(1_200)]
    outcomes = await client.create_many([*requests, jobwire.new_job(ttl=60, job_id="job0")])
    assert [type(outcome) for outcome in outcomes] == [store_pb2.CreateResponse] * 1_200 + [jobwire.AlreadyExists]
    jobs = await client.batch_get([*(f"job{index}" for index in range(1_200)), "nothing"])
    assert [job.id if job else None for job in jobs] == [*(f"job{index}" for index in range(1_200)), None]
    assert len(await client.list_ids(limit=1_000)) == 1_000


async def test_batch_get_asks_again_for_what_did_not_fit(client: jobwire.Client) -> None:
    for index in range(3):
        await client.create(ttl=60, job_id=f"large{index}", payload=bytes(1_900_000))
    jobs = await client.batch_get([f"large{index}" for index in range(3)], full=True)
    assert [len(job.payload) if job else 0 for job in jobs] == [1_900_000] * 3


async def test_update_with_an_etag(client: jobwire.Client) -> None:
    job = await client.create(ttl=60, job_id="state")
    updated = await client.update(
        "state",
        etag=job.etag,
        status=jobwire.JobStatus.JOB_STATUS_RUNNING,
        labels={},
        progress=job_pb2.Progress(fraction=0.5),
    )
    assert updated.status == jobwire.JobStatus.JOB_STATUS_RUNNING
    with pytest.raises(jobwire.EtagMismatch) as mismatch:
        await client.update("state", etag=job.etag, result=b"x")
    assert mismatch.value.etag == updated.etag
    await client.create(queue="q", ttl=60, job_id="queued")
    with pytest.raises(jobwire.IllegalTransition) as illegal:
        await client.update("queued", status=jobwire.JobStatus.JOB_STATUS_FAILED)
    assert illegal.value.status == "JOB_STATUS_PENDING"


async def test_delete_and_exists(client: jobwire.Client) -> None:
    await client.create(ttl=60, job_id="a")
    assert await client.exists("a")
    assert await client.delete("a")
    assert not await client.delete("a")
    assert not await client.exists("a")


async def test_children_page_by_page(client: jobwire.Client) -> None:
    await client.create(ttl=60, job_id="parent")
    for index in range(5):
        await client.create(ttl=60, parent="parent", job_id=f"parent/{index}")
    children = [child.id async for child in client.list_children("parent", page_size=2)]
    assert children == [f"parent/{index}" for index in range(5)]


async def test_claim_heartbeat_settle(client: jobwire.Client) -> None:
    for index in range(4):
        await client.create(queue="q", ttl=60, job_id=f"job{index}", payload=b"p")
    claimed = await client.claim("q", max_jobs=10, worker_id="w", lease_duration=20)
    assert [one.job.id for one in claimed] == [f"job{index}" for index in range(4)]
    assert claimed[0].job.payload == b"p"
    assert await client.claim(["q", "other"]) == []

    beat = store_pb2.LeaseHeartbeat(
        lease=jobwire.LeaseRef(id="job0", token=claimed[0].lease_token), progress=job_pb2.Progress(fraction=0.5)
    )
    lost = jobwire.LeaseRef(id="job0", token="wrong")
    results = await client.heartbeat([beat, claimed[1], lost], worker_id="w")
    assert [result.state for result in results] == [
        store_pb2.LEASE_STATE_HELD,
        store_pb2.LEASE_STATE_HELD,
        store_pb2.LEASE_STATE_LOST,
    ]
    assert (await client.get("job0")).progress.fraction == 0.5

    await client.complete(claimed[0], "done")
    assert (await client.complete(claimed[0], "other")).repeated_call
    assert (await client.get("job0", full=True)).result == b"done"
    with pytest.raises(jobwire.LeaseLost):
        await client.fail(claimed[0], "too late")
    failed = await client.fail(claimed[1], "broken", retryable=False)
    assert failed.status == jobwire.JobStatus.JOB_STATUS_FAILED
    await client.release(claimed[2], delay=30)
    assert (await client.get("job2")).wait_reason == job_pb2.WAIT_REASON_BACKOFF
    [settled, refused] = await client.batch_settle(
        [
            store_pb2.Settlement(release=store_pb2.ReleaseRequest(lease=jobwire.LeaseRef(id="job3", token=token)))
            for token in (claimed[3].lease_token, "wrong")
        ]
    )
    assert isinstance(settled, store_pb2.ReleaseResponse)
    assert isinstance(refused, jobwire.LeaseLost)


async def test_get_waits_for_the_end(client: jobwire.Client) -> None:
    await client.create(queue="q", ttl=60, job_id="a")
    waiting = asyncio.create_task(client.get("a", wait=30, full=True))
    [claimed] = await client.claim("q", wait=5)
    await client.complete(claimed, "done")
    assert (await waiting).result == b"done"


async def test_cancel(client: jobwire.Client) -> None:
    await client.create(queue="q", ttl=60, job_id="a")
    answer = await client.cancel("a", reason="enough")
    assert answer.outcome == store_pb2.CANCEL_OUTCOME_CANCELLED
    assert answer.job.cancel.reason == "enough"


async def test_reclaim_stale_and_queues(client: jobwire.Client) -> None:
    for index in range(3):
        await client.create(queue=f"q{index}", ttl=60)
    assert [queue.ref.queue async for queue in client.list_queues(page_size=1)] == ["q0", "q1", "q2"]
    await client.claim("q0")
    assert (await client.get_queue("q0")).stats.running == 1
    assert await client.reclaim_stale() == []
    reclaimed = await client.reclaim_stale(heartbeat_before=datetime.now(UTC) + timedelta(minutes=1))
    assert len(reclaimed) == 1
    assert (await client.get_queue("q0")).stats.ready == 1


async def test_claim_stream(client: jobwire.Client) -> None:
    async with client.claim_stream("q", max_in_flight=2, keepalive_interval=1) as stream:
        opened = await stream.read()
        assert opened is not None
        assert opened.opened.max_in_flight == 2
        await client.create(queue="q", ttl=60, job_id="a")
        async for message in stream:
            if message.WhichOneof("event") == "jobs":
                [claimed] = message.jobs.jobs
                assert claimed.job.id == "a"
                await client.complete(claimed)
                break
    with pytest.raises(jobwire.InvalidArgument):
        async with client.claim_stream([]) as stream:
            await stream.read()


def use_the_blocking_client(address: str) -> None:
    with jobwire.connect_sync(address) as client:
        job = client.create(queue="q", ttl=60, job_id="a", payload="p")
        assert client.create_many([jobwire.new_job(ttl=60, job_id="a/b", parent="a")])
        assert [child.id for child in client.list_children("a")] == ["a/b"]
        assert client.get("a", full=True).payload == b"p"
        assert [found.id if found else "" for found in client.batch_get(["a", "b"])] == ["a", ""]
        assert client.exists("a")
        assert client.update("a", labels={"x": "y"}, etag=job.etag).labels["x"] == "y"
        assert set(client.list_ids()) == {"a", "a/b"}
        assert [queue.ref.queue for queue in client.list_queues()] == ["q"]
        assert client.get_queue("q").stats.ready == 1
        [claimed] = client.claim("q")
        [result] = client.heartbeat([claimed])
        assert result.state == store_pb2.LEASE_STATE_HELD
        client.release(claimed)
        [claimed] = client.claim("q")
        client.fail(claimed, "again")
        with client.claim_stream("q") as stream:
            claimed = next(message.jobs.jobs[0] for message in stream if message.HasField("jobs"))
            client.complete(claimed, "done")
        assert client.get("a", full=True, wait=1).result == b"done"
        with pytest.raises(jobwire.LeaseLost):
            client.settle(store_pb2.Settlement(fail=store_pb2.FailRequest(lease=jobwire.LeaseRef(id="a", token="t"))))
        assert client.cancel("a/b").outcome == store_pb2.CANCEL_OUTCOME_CANCELLED
        assert client.reclaim_stale() == []
        assert client.delete("a")
        with pytest.raises(jobwire.NotFound):
            client.get("a")


async def test_the_blocking_client(address: str) -> None:
    await asyncio.to_thread(use_the_blocking_client, address)


async def test_a_dropped_stream_gives_its_place_up(client: jobwire.Client) -> None:
    async with client.claim_stream("q") as stream:
        await stream.read()
    job = await client.create(queue="q", ttl=60)

    async def somebody_else_gets_it() -> bool:
        return [claimed.job.id for claimed in await client.claim("q")] == [job.id]

    await wait_until(somebody_else_gets_it)
