"""What an engine must be and had better be, told when a store opens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.store.redis import RedisStore
from jobwire_server.store.redis.check import _refuse_older

from tests.engines import ENGINE, Engine
from tests.machine.damage import agrees, repair
from tests.requests import claim, complete, create


@pytest.fixture
async def settings(engine: Engine) -> AsyncIterator[dict[str, str]]:
    """Put back at the end."""
    await engine.flush()
    async with engine.client() as client:
        names = ("maxmemory-policy", "appendonly", "save")
        before = {name: str(next(iter((await client.config_get(name)).values()))) for name in names}
        yield before
        for name, value in before.items():
            await client.config_set(name, value)


async def opened(engine: Engine, url: str = "") -> tuple[str, list[str]]:
    store = await RedisStore.connect(url or engine.url)
    await store.close()
    return store.engine, list(store.warnings)


async def test_the_engine_is_named(engine: Engine) -> None:
    name, _ = await opened(engine)
    assert name.split()[0] == ("redis" if ENGINE.startswith("redis") else "valkey")
    assert name.split()[1][0].isdigit()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
async def test_d10_an_eviction_policy_is_named(engine: Engine, settings: dict[str, str], policy: str) -> None:
    async with engine.client() as client:
        await client.config_set("maxmemory-policy", policy)
        _, warnings = await opened(engine)
    assert [warning for warning in warnings if policy in warning and "noeviction" in warning]


async def test_an_engine_that_keeps_nothing_is_told(engine: Engine, settings: dict[str, str]) -> None:
    async with engine.client() as client:
        assert "keeps nothing on disk" in " ".join((await opened(engine))[1])
        await client.config_set("save", "3600 1")
        assert "snapshots only" in " ".join((await opened(engine))[1])
        await client.config_set("appendonly", "yes")
        assert (await opened(engine))[1] == []


async def test_d10_a_user_with_only_what_is_needed_works_and_is_told_what_is_not_known(engine: Engine) -> None:
    """The commands that docs/operations.md lists, on our keys and channels alone."""
    await engine.flush()
    commands = (
        "+@read +@write +@scripting +@transaction +@connection +publish +subscribe +unsubscribe +time -@dangerous +info"
    )
    async with engine.client() as client:
        await client.execute_command(  # type: ignore[no-untyped-call]
            "ACL",
            "SETUSER",
            "jobs",
            "reset",
            "on",
            ">p@ss/w#rd%",
            "~jobwire:*",
            "resetchannels",
            "&jobwire:*",
            *commands.split(),
        )
        try:
            if engine.url.startswith("unix://"):
                url = engine.url.replace("unix://", "unix://jobs:p%40ss%2Fw%23rd%25@")
            else:
                url = engine.url.replace("redis://", "redis://jobs:p%40ss%2Fw%23rd%25@")
            _, warnings = await opened(engine, url)
            assert [warning for warning in warnings if "refuses CONFIG" in warning]
            store = await RedisStore.connect(url)
            await store.create(create("a", "q"))
            [claimed] = (await store.claim(claim("q"))).jobs
            await store.complete(complete(claimed))
            await store.sweep(0)
            assert await agrees(store)
            assert await repair(store) == {}
            await store.ping()
            notices = store.notices()
            await anext(notices)
            await notices.aclose()
            assert list((await store.list_ids(store_pb2.ListIdsRequest())).ids) == ["a"]
            await store.close()
            with pytest.raises(ValueError, match="credentials") as refused:
                await opened(engine, url.replace("p%40ss", "wrong"))
            assert "wrong" not in str(refused.value)
        finally:
            await client.acl_deluser("jobs")


@pytest.mark.parametrize(("name", "version"), [("redis", "6.0.16"), ("redis", "5.0"), ("valkey", "7.0.1")])
def test_an_engine_that_is_too_old_is_refused(name: str, version: str) -> None:
    with pytest.raises(ValueError, match=f"{name} {version}; jobwire needs"):
        _refuse_older(name, version)
