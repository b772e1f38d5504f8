"""What is permanent for a deployment."""

from __future__ import annotations

import asyncio

import pytest
from jobwire.v1 import job_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore

from tests.conformance.bench import refusal
from tests.engines import Engine
from tests.requests import claim, create


@pytest.fixture(autouse=True)
async def empty(engine: Engine) -> None:
    await engine.flush()


async def test_the_first_comer_fixes_the_number_of_partitions(engine: Engine) -> None:
    first = await RedisStore.connect(engine.url, partitions=16)
    second = await RedisStore.connect(engine.url)

    assert (first.partitions, second.partitions) == (16, 16)
    with pytest.raises(ValueError, match="holds 16 partitions, not 4"):
        await RedisStore.connect(engine.url, partitions=4)
    await first.close()
    await second.close()


async def test_first_comers_at_the_same_instant_agree(engine: Engine) -> None:
    outcomes = await asyncio.gather(
        *(RedisStore.connect(engine.url, partitions=partitions) for partitions in (2, 4, 8) * 5),
        return_exceptions=True,
    )
    stores = [outcome for outcome in outcomes if isinstance(outcome, RedisStore)]

    assert len(stores) == 5
    assert len({store.partitions for store in stores}) == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_another_prefix_is_another_deployment(engine: Engine) -> None:
    one = await RedisStore.connect(engine.url, partitions=2)
    other = await RedisStore.connect(engine.url, partitions=4, prefix="other")

    assert (one.partitions, other.partitions) == (2, 4)
    await one.close()
    await other.close()


async def test_a_running_replica_puts_back_what_the_engine_lost(engine: Engine) -> None:
    """It was evicted, or the engine came back empty: who starts next must not take another number of partitions."""
    running = await RedisStore.connect(engine.url, partitions=16)
    await engine.flush()
    await running.ping()
    next_one = await RedisStore.connect(engine.url)
    assert next_one.partitions == 16
    await running.close()
    await next_one.close()


async def test_a_replica_that_is_alone_with_its_number_is_not_well(engine: Engine) -> None:
    """Another one was quicker after the engine had come back empty: neither would find the other's jobs."""
    running = await RedisStore.connect(engine.url, partitions=16)
    await engine.flush()
    quicker = await RedisStore.connect(engine.url, partitions=4)
    error = await refusal(running.ping())
    assert error.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    assert "holds 4 partitions, not 16" in error.message
    await quicker.ping()
    await running.close()
    await quicker.close()


async def test_an_unknown_schema_is_refused(engine: Engine) -> None:
    async with engine.client() as client:
        await client.hset("jobwire:meta", mapping={"schema": "99", "partitions": "1"})

    with pytest.raises(ValueError, match="schema 99"):
        await RedisStore.connect(engine.url)


@pytest.mark.parametrize(("options", "problem"), [({"prefix": "a{b"}, "prefix"), ({"partitions": 0}, "between 1 and")])
async def test_impossible_settings_are_named(engine: Engine, options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        await RedisStore.connect(engine.url, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://:secret@h:port", "not a usable engine URL"),
        ("redis://:secret@h/0?unknown=1", "unknown option unknown"),
        ("http://:secret@h", "not a usable engine URL"),
    ],
)
async def test_an_unusable_url_is_one_clear_error_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        await RedisStore.connect(url)
    assert "secret" not in str(refused.value)


async def test_an_engine_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(StoreError) as error:
        await RedisStore.connect("redis://127.0.0.1:1/0")
    assert error.value.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE


async def test_a_store_whose_partitions_are_not_the_engines_any_more_does_nothing(engine: Engine) -> None:
    """It would look for jobs, ids and keys where nobody else puts them."""
    await engine.flush()
    store = await RedisStore.connect(engine.url, partitions=4)
    await store.create(create("a", "q"))
    async with engine.client() as client:
        await client.hset("jobwire:meta", "partitions", "1")
        for call in (store.ping(), store.create(create("b", "q")), store.claim(claim("q"))):
            with pytest.raises(StoreError, match="1 partitions, not 4") as refused:
                await call
            assert refused.value.reason == job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
        await client.hset("jobwire:meta", "partitions", "4")
    await store.ping()
    assert len((await store.claim(claim("q"))).jobs) == 1
    await store.close()
