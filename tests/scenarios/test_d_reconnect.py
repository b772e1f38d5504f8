"""Links that break while a worker waits: it must go on by itself, and without notices."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import jobwire
import pytest
from jobwire_server.app import running

from tests.client.working import ended, working
from tests.engines import Engine
from tests.proxy import Proxy
from tests.requests import complete, create
from tests.scenarios.engine_links import proxied, served, stored, url_of
from tests.scenarios.scale import scaled
from tests.server.probe import Reading, connected, streaming
from tests.wait import wait_until

# What a lost notice may cost is a second; twice as much again, for a machine that is busy with other tests.
DELIVERY_SECONDS = 3.0

BURSTS = scaled(6)


@pytest.mark.parametrize("harm", ["killed", "black hole"])
async def test_d15_without_notices_a_job_is_found_by_looking(engine: Engine, harm: str) -> None:
    """A subscriber stayed silent after its connection had been replaced, and for ever when it was half open; what was
    published in between was gone (redis-py #1464, #2417).
    """
    async with (
        proxied(engine) as proxy,
        served(engine.url) as (creating, _),
        stored(engine.url) as store,
    ):
        store._url = url_of(proxy)  # where it subscribes; its calls go straight to the engine
        async with running(store) as server, connected(server.address) as stub, connected(creating) as other:
            await wait_until(lambda: proxy.open_connections == 1)
            async with streaming(stub, "q", max_in_flight=10) as call:
                reading = Reading(call)
                if harm == "black hole":
                    proxy.freeze()
                subscriptions = proxy.connections
                slowest = 0.0
                deadline = time.monotonic() + scaled(3)
                number = 0
                while time.monotonic() < deadline:
                    if harm == "killed" and number % 2 == 0:
                        async with engine.client() as client:
                            await client.client_kill_filter(_type="pubsub")
                    began = time.monotonic()
                    # Through the other server, so that this one hears of it by a notice or by its own looking.
                    await other.Create(create(f"job-{number}", "q"))
                    number += 1
                    await wait_until(lambda: len(reading.jobs) == number)  # noqa: B023
                    slowest = max(slowest, time.monotonic() - began)
                    await stub.Complete(complete(reading.jobs[-1]))
                    await asyncio.sleep(random.uniform(0, 0.1))
                await reading.stop()
            proxy.thaw()
            assert slowest < DELIVERY_SECONDS
            assert [(one.job.id, one.job.attempt) for one in reading.jobs] == [(f"job-{n}", 1) for n in range(number)]
            if harm == "killed":
                assert proxy.connections > subscriptions


async def test_d16_a_worker_works_on_after_bursts_of_resets(engine: Engine) -> None:
    """Several losses in a row, the later ones while the first was being recovered from: logs said "reconnected", and
    nothing was consumed until a restart (celery #8030, dramatiq #207).
    """
    async with (
        proxied(engine) as far,
        served(url_of(far)) as (address, _),
        Proxy.before(address) as near,
        jobwire.connect(near.address) as client,
    ):
        worker = jobwire.Worker(near.address, queues="q", concurrency=4, lease_duration=1)
        handled: Counter[str] = Counter()

        @worker.handler()
        async def handle(job: jobwire.JobContext) -> None:
            handled[job.job.id] += 1

        resets = 0
        async with working(worker):
            for burst in range(BURSTS):
                await ended(client, await client.create(queue="q", ttl=60))
                during = [
                    asyncio.create_task(client.create(queue="q", ttl=60, labels={"burst": str(burst)}))
                    for _ in range(5)
                ]
                for _ in range(random.randint(3, 5)):
                    await asyncio.sleep(random.uniform(0, 0.1))
                    resets += random.choice((near, far)).reset()
                # What was asked for in the middle of it is done as well, once each.
                for creating in during:
                    await ended(client, await creating)
        assert resets >= BURSTS * 3
        assert len(handled) == BURSTS * 6
