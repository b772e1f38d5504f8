"""The engine's connection: gathered calls, cancelled callers, repeated calls, states of the engine."""

from __future__ import annotations

import asyncio

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore, scripts

from tests.engines import Engine
from tests.redis.test_scripts import claim_request, create_request


async def test_concurrent_calls_share_round_trips(store: RedisStore, engine: Engine) -> None:
    await store.create(create_request("warm"))
    before = await _reads(engine)

    await asyncio.gather(*(store.create(create_request(f"job-{number}")) for number in range(200)))

    # What the engine reads at once is one pipeline: far fewer reads than calls.
    assert await _reads(engine) - before < 40


async def _reads(engine: Engine) -> int:
    async with engine.client() as client:
        return int((await client.info("stats"))["total_reads_processed"])


async def test_a_cancelled_caller_gets_nobody_elses_answer(store: RedisStore) -> None:
    """Every caller asks for an id of its own; many are cancelled at every point of the way."""
    await asyncio.gather(*(store.create(create_request(f"job-{number}")) for number in range(50)))

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
    created = await store.create(create_request("job"))
    [claimed] = (await store.claim(claim_request(3))).jobs
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
        await store.create(create_request(f"job-{number}"))

    assert len((await store.list_ids(store_pb2.ListIdsRequest())).ids) == 20


async def test_a_full_engine_refuses_a_create_whole_and_still_lets_jobs_finish(
    store: RedisStore, engine: Engine
) -> None:
    await store.create(create_request("before"))
    [claimed] = (await store.claim(claim_request())).jobs
    async with engine.client() as client:
        await client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreError) as refused:
                await store.create(create_request("after"))
            with pytest.raises(StoreError) as unhealthy:
                await store.ping()
            lease = store_pb2.LeaseRef(id="before", token=claimed.lease_token)
            await store.complete(store_pb2.CompleteRequest(lease=lease))
        finally:
            await client.config_set("maxmemory", 0)

    assert refused.value.reason == unhealthy.value.reason == job_pb2.ERROR_REASON_ENGINE_FULL
    assert refused.value.retry_after_ms > 0
    assert list((await store.list_ids(store_pb2.ListIdsRequest())).ids) == ["before"]
    await store.ping()


async def test_an_engine_that_is_down_differs_from_an_empty_queue(store: RedisStore) -> None:
    nowhere = RedisStore(
        "unix:///nowhere", type(store._engine)("unix:///nowhere"), "jobwire", None, sweep_interval_ms=0
    )
    assert not (await store.claim(claim_request())).jobs
    with pytest.raises(StoreError) as down:
        await nowhere.claim(claim_request())
    assert down.value.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    await nowhere.close()
