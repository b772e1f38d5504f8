"""A server that dies, or is cut off, after it has done what it was asked and before it says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import jobwire
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server import app

from tests.client.working import status_of, working
from tests.proxy import Proxy, Way
from tests.scenarios.scale import scaled
from tests.scenarios.servers import Jobs, address, client, jobs
from tests.wait import wait_until

__all__ = ["address", "client", "jobs"]

Client = jobwire.Client


@contextlib.asynccontextmanager
async def one_reply_lost(proxy: Proxy, mark: str) -> AsyncIterator[None]:
    """The first request that names `mark` is carried out, and its connection is reset before the reply."""
    proxy.lose_replies(mark.encode())

    async def watch(lost: int) -> None:
        await wait_until(lambda: proxy.lost_replies > lost)
        proxy.keep_replies()

    watching = asyncio.create_task(watch(proxy.lost_replies))
    yield
    await watching


async def create(client: Client, claimed: jobwire.ClaimedJob) -> None:
    assert (await client.create(job_id="mark-new", queue="other", ttl=60)).attempt == 0


async def create_by_key(client: Client, claimed: jobwire.ClaimedJob) -> None:
    job = await client.create(dedup_key="mark-key", queue="other", ttl=60)
    assert (await client.create(dedup_key="mark-key", queue="other", ttl=60)).id == job.id


async def create_many(client: Client, claimed: jobwire.ClaimedJob) -> None:
    answers = await client.create_many([jobwire.new_job(job_id=f"mark-{n}", queue="other", ttl=60) for n in range(2)])
    assert all(isinstance(answer, store_pb2.CreateResponse) for answer in answers)


async def update(client: Client, claimed: jobwire.ClaimedJob) -> None:
    assert (await client.update("mark-job", labels={"a": "b"})).labels == {"a": "b"}


async def complete(client: Client, claimed: jobwire.ClaimedJob) -> None:
    await client.complete(claimed, "done")
    assert (await client.get("mark-job", full=True)).result == b"done"


async def fail(client: Client, claimed: jobwire.ClaimedJob) -> None:
    await client.fail(claimed, "no", delay=60)
    assert (await client.get("mark-job")).failures == 1


async def release(client: Client, claimed: jobwire.ClaimedJob) -> None:
    await client.release(claimed, delay=60)
    now = await client.get("mark-job")
    assert (now.failures, now.losses, now.attempt) == (0, 0, 1)


async def cancel(client: Client, claimed: jobwire.ClaimedJob) -> None:
    await client.cancel("mark-job")
    assert (await client.get("mark-job")).cancel.requested


async def delete(client: Client, claimed: jobwire.ClaimedJob) -> None:
    await client.delete("mark-job")
    assert not await client.exists("mark-job")


VERBS: dict[str, tuple[Callable[[Client, jobwire.ClaimedJob], Awaitable[None]], dict[str, int]]] = {
    # Each with what the queue "other" holds in the end.
    "Create": (create, {"ready": 1}),
    "Create by key": (create_by_key, {"ready": 1}),
    "BatchCreate": (create_many, {"ready": 2}),
    "Update": (update, {}),
    "Complete": (complete, {}),
    "Fail": (fail, {}),
    "Release": (release, {}),
    "Cancel": (cancel, {}),
    "Delete": (delete, {}),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_e18_what_was_done_unheard_is_done_once(address: str, client: Client, verb: str) -> None:
    """UNAVAILABLE was taken for "not done", and a blind repeat did it twice (google-cloud-ruby #1572, grpc #18761). The
    shipped client repeats by itself here, and its caller sees nothing of it.
    """
    call, holds = VERBS[verb]
    await client.create(job_id="mark-job", queue="q", ttl=60)
    [claimed] = await client.claim("q", lease_duration=60)
    async with Proxy.before(address) as proxy, jobwire.connect(proxy.address) as mine:
        await mine.exists("warm")
        async with one_reply_lost(proxy, "mark-"):
            await call(mine, claimed)
        assert proxy.lost_replies == 1
    stats = (await client.get_queue("other")).stats
    assert stats.ready == holds.get("ready", 0)
    if verb != "Delete":
        now = await client.get("mark-job")
        # One change for its creation, one for the claim, and one for what the verb did.
        changed = verb in ("Update", "Complete", "Fail", "Release", "Cancel")
        assert now.version == 2 + changed


async def test_e18_a_claim_whose_answer_is_lost_is_not_repeated_and_loses_nothing(address: str, client: Client) -> None:
    """The one verb that a blind repeat would do twice: its jobs come back when their leases run out."""
    await client.create(job_id="job", queue="q", ttl=60)
    async with Proxy.before(address) as proxy, jobwire.connect(proxy.address) as mine:
        await mine.exists("warm")
        proxy.freeze(Way.REPLIES)
        claiming = asyncio.create_task(mine.claim("q", lease_duration=0.5))

        async def is_claimed() -> bool:
            return (await client.get("job")).attempt == 1

        await wait_until(is_claimed)
        proxy.reset()
        proxy.thaw()
        with pytest.raises(jobwire.Unavailable):
            await claiming
        [again] = await mine.claim("q", wait=30)
        assert (again.job.id, again.job.attempt, again.job.losses) == ("job", 2, 1)


async def test_e08_connections_of_a_certain_age_are_replaced_unseen(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ends its connections at a certain age, as proxies do too, cut long streams and raced with calls
    just sent (grpc-go #2767, grpc-java #9566, linkerd2 #4262). Ours sets no age; here it does, a short one.
    """
    age = (("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 300))
    monkeypatch.setattr(app, "_OPTIONS", (*app._OPTIONS, *age))
    runs: dict[str, int] = {}
    async with jobs.server() as server, Proxy.before(server.address) as proxy:
        worker = jobwire.Worker(proxy.address, queues="q", concurrency=20, lease_duration=30)

        @worker.handler()
        async def handle(job: jobwire.JobContext) -> str:
            runs[job.job.id] = runs.get(job.job.id, 0) + 1
            await asyncio.sleep(0.05)
            return "done"

        async with jobwire.connect(proxy.address) as client, working(worker):

            async def produce() -> list[str]:
                ids = []
                for _ in range(scaled(30)):
                    ids.append((await client.create(queue="q", ttl=60)).id)
                    await asyncio.sleep(0.1)  # a load, paced
                return ids

            created = [job_id for ids in await asyncio.gather(*(produce() for _ in range(5))) for job_id in ids]

            async def all_done() -> bool:
                return {job.status for job in await client.batch_get(created) if job} == {job_pb2.JOB_STATUS_SUCCEEDED}

            await wait_until(all_done, 60)
            records = [job for job in await client.batch_get(created) if job]
        assert proxy.connections > 6  # of three, each was replaced
    assert len(records) == len(created) == len(set(created))
    assert sum(job.failures + job.losses for job in records) == 0
    assert set(runs) == set(created)


PAYLOADS = {"at the limit": 1_900_000, "over it": 1_900_001, "about a message": 4 << 20, "far beyond": 64 << 20}


@pytest.mark.parametrize("what", PAYLOADS)
async def test_e09_a_payload_of_any_size_gets_a_clear_answer(client: Client, what: str) -> None:
    """One end's limit was set and not the other's, and the answer said little (grpc #23388, #35805, flower #3006)."""
    size = PAYLOADS[what]
    if size <= 1_900_000:
        job = await client.create(queue="q", payload=bytes(size), ttl=60)
        [claimed] = await client.claim("q")
        assert len(claimed.job.payload) == size
        await client.complete(claimed, bytes(size))
        now = await client.get(job.id, full=True)
        assert (len(now.payload), len(now.result)) == (size, size)
    else:
        kind = jobwire.InvalidArgument if size < 4 << 20 else jobwire.ResourceExhausted
        with pytest.raises(kind) as refused:
            await client.create(queue="q", payload=bytes(size), ttl=60)
        assert isinstance(refused.value, jobwire.ResourceExhausted) or "payload" in "".join(refused.value.fields)
    # The connection is whole, and others' calls were not touched.
    assert not await client.exists("none")
    assert await status_of(client, (await client.create(queue="r", ttl=60)).id) == "PENDING"


async def test_e09_a_batch_larger_than_a_message_is_split(client: Client) -> None:
    """The same for many small ones that are too large together."""
    many = [jobwire.new_job(queue="q", payload=bytes(10_000), ttl=60) for _ in range(1_000)]
    answers = await client.create_many(many)
    assert [answer.created for answer in answers if isinstance(answer, store_pb2.CreateResponse)] == [True] * 1_000
    claimed = await client.claim("q", max_jobs=1_000)
    assert 0 < len(claimed) < 1_000  # what one message holds
    assert (await client.get_queue("q")).stats.ready == 1_000 - len(claimed)
