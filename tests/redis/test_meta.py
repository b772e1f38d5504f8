"""What is permanent for a deployment."""

from __future__ import annotations

import asyncio

import pytest
from jobwire.v1 import job_pb2
from jobwire_server.store.errors import StoreError
from jobwire_server.store.redis import RedisStore

from tests.conformance.bench import refusal
from tests.engines import Engine


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
