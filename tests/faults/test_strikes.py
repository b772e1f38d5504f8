"""kill -9, SIGSTOP for longer than a lease, and SIGTERM then SIGKILL, of workers, servers and the engine, while jobs
are submitted and done: every rule holds.

JOBWIRE_TEST_KILLS says how many of each have to land while a write is in flight.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.faults.conftest import Tell
from tests.faults.deployment import deployment, loaded, seeded
from tests.faults.processes import Server
from tests.faults.strikes import KILLS, EngineVictim, ServerVictim, Tally, WorkerVictim
from tests.wait import wait_until

LEASE_SECONDS = 1.0
JOBS_PER_SECOND = 60
DEADLY = 2
TIMEOUT = 90 + 3 * KILLS * 10  # of three kinds, each some seconds on a busy machine


def freeze_seconds(rng: random.Random) -> float:
    """Longer than a lease; sometimes longer than it takes to notice."""
    return LEASE_SECONDS + rng.uniform(0.1, 0.8)


@pytest.mark.timeout(TIMEOUT)
async def test_workers_are_struck_and_every_rule_holds(tell: Tell) -> None:
    """Among the jobs are some that kill whoever takes them, until they have used up their attempts."""
    rng, tally = seeded(), Tally("workers")
    async with deployment(2, 3, lease=LEASE_SECONDS) as at, at.workers.kept_at(3):
        async with loaded(at, JOBS_PER_SECOND, rng) as load:
            deadly = {f"deadly-{number}" for number in range(DEADLY)}
            for job in deadly:
                await load.submit(job, "deadly", attempts=3)
            while kinds := tally.open():
                if busy := [worker for worker in at.workers.living() if worker.held()]:
                    await tally.strike(rng.choice(kinds), WorkerVictim(rng.choice(busy)), rng, freeze_seconds(rng))
                else:
                    await asyncio.sleep(0.02)
        line = await at.finish(load.acknowledged, dead=deadly)
    tell(f"{tally}; {line}")


@pytest.mark.timeout(TIMEOUT)
async def test_servers_are_struck_and_every_rule_holds(tell: Tell) -> None:
    """The engine is a little away from them, else a server that is asked to end would have done so at once."""
    rng, tally = seeded(), Tally("servers")
    async with deployment(3, 2, lease=LEASE_SECONDS, proxied_engine=True) as at:
        at.proxies[0].delay_seconds = 0.025

        def serving() -> list[Server]:
            return [server for server in at.servers if server.is_serving]

        async with loaded(at, JOBS_PER_SECOND, rng) as load, asyncio.TaskGroup() as starting:
            while kinds := tally.open():
                await wait_until(lambda: len(serving()) > 1, 60)  # whatever comes, one remains
                victim = ServerVictim(rng.choice(serving()), at, load, starting)
                await tally.strike(rng.choice(kinds), victim, rng, freeze_seconds(rng))
        line = await at.finish(load.acknowledged)
    tell(f"{tally}; {line}")


@pytest.mark.timeout(TIMEOUT)
async def test_the_engine_is_struck_and_every_rule_holds(tell: Tell) -> None:
    """It keeps what it acknowledged, as its every write reaches the disk first."""
    rng, tally = seeded(), Tally("engine")
    async with deployment(2, 2, lease=LEASE_SECONDS) as at:
        async with loaded(at, JOBS_PER_SECOND, rng) as load:
            while kinds := tally.open():
                await tally.strike(rng.choice(kinds), EngineVictim(at, load), rng, freeze_seconds(rng))
                await load.progress()
        line = await at.finish(load.acknowledged)
    tell(f"{tally}; {line}")
