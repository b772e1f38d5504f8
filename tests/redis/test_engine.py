"""The engine's connection: gathered calls, cancelled callers, repeated calls, states of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore, scripts
from jobwire_server.store.redis.engine import _as_store_error
from redis import exceptions

from tests.clock import Clock
from tests.conformance.bench import refusal
from tests.engines import Engine
from tests.proxy import Proxy
from tests.requests import claim, complete, create, fail, heartbeat, release, update


async def test_concurrent_calls_share_round_trips(store: RedisStore, engine: Engine) -> None:
    await store.create(create("warm", "q"))
    before = await _reads(engine)

    await asyncio.gather(*(store.create(create(f"job-{number}", "q")) for number in range(200)))

    # What the engine reads at once is one pipeline: far fewer reads than calls.
    assert await _reads(engine) - before < 40


async def _reads(engine: Engine) -> int:
    async with engine.client() as client:
        return int((await client.info("stats"))["total_reads_processed"])


async def test_a_cancelled_caller_gets_nobody_elses_answer(store: RedisStore) -> None:
    """Every caller asks for an id of its own; many are cancelled at every point of the way."""
    await asyncio.gather(*(store.create(create(f"job-{number}", "q")) for number in range(50)))

    async def ask(number: int) -> str:
        return (await store.get(store_pb2.GetRequest(id=f"job-{number % 50}"))).job.id

    for round_ in range(60):
        tasks = [asyncio.create_task(ask(number)) for number in range(50)]
        for _ in range(round_ % 12):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for number, answer in enumerate(answers):
            assert isinstance(answer, asyncio.CancelledError) or answer == f"job-{number}"
        assert not any(isinstance(answer, asyncio.CancelledError) for answer in answers[1::2])


async def test_a_create_whose_answer_was_lost_is_recognised_when_repeated(store: RedisStore) -> None:
    """The engine's client repeats a call after a lost connection: same arguments, same effect once."""
    calls = []
    run = store._engine.run

    async def twice(script: scripts.Script, key: str, args: list[object]) -> object:
        calls.append(script.name)
        await run(script, key, args)  # type: ignore[arg-type]
        return await run(script, key, args)  # type: ignore[arg-type]

    store._engine.run = twice  # type: ignore[method-assign, assignment]
    created = await store.create(create("job", "q"))
    [claimed] = (await store.claim(claim("q", max_jobs=3))).jobs
    lease = store_pb2.LeaseRef(id="job", token=claimed.lease_token)
    update = store_pb2.UpdateRequest(id="job")
    update.labels.entries["a"] = "b"
    updated = await store.update(update)
    await store.fail(store_pb2.FailRequest(lease=lease))
    store._engine.run = run  # type: ignore[method-assign]

    job = (await store.get(store_pb2.GetRequest(id="job"))).job
    assert created.created
    assert calls == ["create", "claim", "update", "settle"]
    assert updated.job.version == 3
    assert (job.attempt, job.failures, job.version) == (1, 1, 4)


async def test_a_killed_connection_is_replaced_unseen(store: RedisStore, engine: Engine) -> None:
    for number in range(20):
        async with engine.client() as client:
            await client.client_kill_filter(_type="normal", skipme=True)
        await store.create(create(f"job-{number}", "q"))

    assert len((await store.list_ids(store_pb2.ListIdsRequest())).ids) == 20


@pytest.fixture
async def full(engine: Engine) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Makes the engine full, until the test ends."""
    async with engine.client() as client:

        async def fill() -> None:
            await client.config_set("maxmemory", 1)

        yield fill
        await client.config_set("maxmemory", 0)


async def test_a_full_engine_takes_nothing_new_and_says_so(
    store: RedisStore, full: Callable[[], Awaitable[None]]
) -> None:
    await store.create(create("before"))
    await full()
    refused = [
        store.create(create("after", "q")),
        store.hand_off(create("handed", "q"), claim("q"), 1),
        store.update(update("before", labels={"a": "b"})),
        store.ping(),
    ]
    for call in refused:
        error = await refusal(call)
        assert (error.reason, error.retry_after_ms) == (job_pb2.ERROR_REASON_ENGINE_FULL, 1_000)
    assert list((await store.list_ids(store_pb2.ListIdsRequest())).ids) == ["before"]


async def test_on_a_full_engine_jobs_are_worked_off(store: RedisStore, full: Callable[[], Awaitable[None]]) -> None:
    for number in range(5):
        await store.create(create(f"job-{number}", "q"))
    [held] = (await store.claim(claim("q"))).jobs
    await full()
    [first, second, third] = (await store.claim(claim("q", max_jobs=3))).jobs
    [beat] = (await store.heartbeat(heartbeat(held, progress=job_pb2.Progress(fraction=0.5)))).results
    assert beat.state == store_pb2.LEASE_STATE_HELD
    await store.complete(complete(held, b"result"))
    await store.fail(fail(first))
    await store.fail(fail(second, delay=5))
    await store.release(release(third))
    await store.cancel(store_pb2.CancelRequest(id="job-4"))
    await store.get(store_pb2.GetRequest(id="job-0"), watch=True)
    assert await store.look(0, [("default", "other")]) == [False]
    await store.delete(store_pb2.DeleteRequest(id="job-4"))


async def test_a_full_engine_empties_itself(engine: Engine, clock: Clock, full: Callable[[], Awaitable[None]]) -> None:
    """What has expired goes, although other jobs come due and leases run out in the same sweep."""
    await engine.flush()
    store = await RedisStore.connect(engine.url, clock=clock, sweep_interval_ms=0)
    await store.create(create("gone", ttl=1))
    await store.create(create("due", "q", delay=1))
    await store.create(create("lost", "q", lease=1))
    await store.claim(claim("q"))
    await full()
    clock.advance(2)
    swept = await store.sweep(0)
    assert (swept.promoted, swept.removed, swept.reclaimed) == (1, 1, [("default", "lost")])
    await store.close()


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ReadOnlyError("You can't write against a read only replica."),
        exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
        exceptions.ClusterDownError("The cluster is down"),
        exceptions.MasterDownError("Link with MASTER is down"),
        exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        exceptions.ResponseError("BUSY Redis is busy running a script."),
        exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
        exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        exceptions.ResponseError("ERR Error running script: @user_script:5: -READONLY You can't write"),
        exceptions.ResponseError("Script attempted to access a non local key in a cluster node"),
        exceptions.ConnectionError("Connection closed by server."),
    ],
    ids=lambda error: str(error)[:20],
)
def test_a_passing_state_of_the_engine_is_unavailable(error: Exception) -> None:
    answered = _as_store_error(error)
    assert isinstance(answered, StoreError)
    assert answered.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE


async def test_a_read_only_engine_is_unavailable_and_comes_back(store: RedisStore, engine: Engine) -> None:
    async with engine.client() as client:
        await client.replicaof("127.0.0.1", "1")
        try:
            error = await refusal(store.create(create("a")))
        finally:
            await client.replicaof("NO", "ONE")
    assert error.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    await store.create(create("a"))


def test_a_connection_that_is_reset_at_any_moment_is_no_bug(engine: Engine) -> None:
    """On uvloop, as servers run: it closes such a connection under whoever is about to write."""

    async def reset_again_and_again() -> None:
        async with Proxy.before(engine.url.removeprefix("unix://")) as proxy:
            store = await RedisStore.connect(f"redis://{proxy.address}/0")
            for step in range(100):
                asking = [asyncio.create_task(store.exists(store_pb2.ExistsRequest(id="a"))) for _ in range(2)]
                asking.append(asyncio.create_task(store.ping()))  # type: ignore[arg-type]
                await asyncio.sleep(step / 50_000)
                proxy.reset()
                for answer in await asyncio.gather(*asking, return_exceptions=True):
                    assert not isinstance(answer, BaseException) or isinstance(answer, StoreError), repr(answer)
            await store.close()

    if not engine.can_stop:
        pytest.skip("an engine in a container has no unix socket")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reset_again_and_again())
