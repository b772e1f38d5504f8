"""The connections to the engine: many callers, callers that give up, replies that get lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest
from jobwire.v1 import admin_pb2, store_pb2
from jobwire_server import app
from jobwire_server.rpc.calls import Calls
from jobwire_server.store.redis import RedisStore

from tests.engines import Engine
from tests.requests import claim, complete, create, update
from tests.scenarios.engine_links import called, clients_of, proxied, served, url_of
from tests.scenarios.scale import scaled
from tests.server.probe import Stub, connected, streaming
from tests.wait import wait_until

# One for calls, one for notices, and a little while one takes the place of another.
CONNECTIONS = 6

# As many calls at once as a server takes by default.
CROWD = 2_000

STORM_CALLS = scaled(5_000)
STORM_AT_ONCE = 250


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[Calls]:
    """What the test's servers have in progress."""
    made: list[Calls] = []

    class Seen(Calls):
        def __init__(self, max_calls: int, max_streams: int) -> None:
            super().__init__(max_calls, max_streams)
            made.append(self)

    monkeypatch.setattr(app, "Calls", Seen)
    return made


async def nothing_left(slots: list[Calls], store: RedisStore) -> None:
    """Returns when no call is in progress and nothing is on its way to the engine."""
    async with asyncio.timeout(20):
        for calls in slots:
            await calls._brief.free.wait()
    await wait_until(lambda: not store._engine._waiting and store._engine._flushing is None)


async def test_d05_a_crowd_shares_few_connections(engine: Engine, slots: list[Calls]) -> None:
    """A pool raised when it was empty, or lost a connection with each cancelled call, until the engine took no more
    clients (redis-py #2517, #3259; channels_redis #279).
    """
    await engine.flush()
    before = await clients_of(engine)
    highest = 0
    async with served(engine.url) as (address, store), connected(address) as stub, AsyncExitStack() as stack:
        for number in range(500):
            await stack.enter_async_context(streaming(stub, f"idle-{number}"))

        async def look() -> None:
            nonlocal highest
            while True:
                highest = max(highest, await clients_of(engine) - before)
                await asyncio.sleep(0.02)

        looking = asyncio.create_task(look())
        answers = await asyncio.gather(*(stub.Create(create(f"job-{n}")) for n in range(CROWD)))
        assert [answer.job.id for answer in answers] == [f"job-{n}" for n in range(CROWD)]
        for _ in range(scaled(4)):
            calls = [stub.Get(store_pb2.GetRequest(id=f"job-{n}")) for n in range(1_000)]
            await asyncio.sleep(random.uniform(0, 0.1))
            for call in calls[::2]:
                call.cancel()
            for n, outcome in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
                if isinstance(outcome, store_pb2.GetResponse):
                    assert outcome.job.id == f"job-{n}"
                else:
                    assert n % 2 == 0
                    assert isinstance(outcome, asyncio.CancelledError), outcome
        looking.cancel()
        await nothing_left(slots, store)
        assert 1 <= highest <= CONNECTIONS


async def test_d12_no_caller_gets_an_answer_to_another_whoever_gives_up(engine: Engine, slots: list[Calls]) -> None:
    """A call that was given up between its request and its reply left the reply in the connection for the next user:
    from then on everybody got the answer to another's question (redis-py #2624, #2665).
    """
    before = await clients_of(engine)
    async with proxied(engine) as proxy, served(url_of(proxy)) as (address, store), connected(address) as stub:
        for number in range(100):
            await stub.Create(create(f"known-{number}", labels={"name": f"known-{number}"}))
        connections = proxy.connections
        proxy.delay_seconds = 0.005  # each way
        turn = iter(range(STORM_CALLS))
        answered = given_up = 0

        async def ask() -> None:
            nonlocal answered, given_up
            for number in turn:
                try:
                    await _one_of_many(stub, number)
                    answered += 1
                except (asyncio.CancelledError, TimeoutError):
                    given_up += 1
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error  # noqa: PT017
                    given_up += 1

        async with asyncio.timeout(90):
            await asyncio.gather(*(ask() for _ in range(STORM_AT_ONCE)))
        proxy.delay_seconds = 0
        assert given_up > STORM_CALLS / 4
        assert answered > STORM_CALLS / 10

        await nothing_left(slots, store)
        # None was thrown away. The health check may have found the first one busy, and taken another.
        assert proxy.connections <= connections + 1
        assert await clients_of(engine) - before <= 3
        # Whoever gave up a Claim has nothing: what was claimed for them comes back.
        async with called(address) as [verbs]:

            async def none_runs() -> bool:
                queues = (await verbs.list_queues(admin_pb2.ListQueuesRequest(page_size=1_000))).queues
                return bool(queues) and not any(queue.stats.running for queue in queues)

            await wait_until(none_runs)


async def _one_of_many(stub: Stub, number: int) -> None:
    """One call of some sort, given up within 20 ms in some manner or not at all; checks that its answer is its own."""
    name = f"storm-{number}"
    known = f"known-{number % 100}"

    async def get() -> None:
        job = (await stub.Get(store_pb2.GetRequest(id=known), timeout=timeout)).job
        assert (job.id, dict(job.labels)) == (known, {"name": known})

    async def add() -> None:
        answer = await stub.Create(create(name, name[-2:], labels={"name": name}), timeout=timeout)
        assert (answer.created, answer.job.id, dict(answer.job.labels)) == (True, name, {"name": name})

    async def exists() -> None:
        request = store_pb2.ExistsRequest(id=known if number % 2 else f"unknown-{number}")
        assert (await stub.Exists(request, timeout=timeout)).exists is bool(number % 2)

    async def take() -> None:
        answer = await stub.Claim(claim(name[-2:], lease=1), timeout=timeout)
        for claimed in answer.jobs:
            assert claimed.job.queue == name[-2:]
            assert dict(claimed.job.labels) == {"name": claimed.job.id}
            await stub.Complete(complete(claimed))

    async def change() -> None:
        job = (await stub.Update(update(known, labels={"name": known}), timeout=timeout)).job
        assert job.id == known

    verbs: list[Callable[[], Awaitable[None]]] = [get, add, exists, take, change]
    manner = random.choice(("cancel", "deadline", "patience"))
    timeout = random.uniform(0.001, 0.02) if manner == "deadline" else None
    async with asyncio.timeout(random.uniform(0, 0.02) if manner == "cancel" else None):
        await verbs[number % len(verbs)]()
