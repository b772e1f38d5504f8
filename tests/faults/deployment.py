"""An engine, servers and workers as processes, jobs submitted through every server, and the reckoning at the end."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import jobwire

from tests.engines import Process, durable_engine
from tests.faults.load import Load
from tests.faults.processes import Server, Workers, free_port
from tests.history.checker import check
from tests.history.recorder import Call, Outcome, Recorder, read
from tests.proxy import Proxy
from tests.wait import wait_until

SUCCEEDED = jobwire.JobStatus.JOB_STATUS_SUCCEEDED
FAILED = jobwire.JobStatus.JOB_STATUS_FAILED


def seeded() -> random.Random:
    """Chance that can be had again: JOBWIRE_TEST_SEED, else drawn and printed."""
    seed = int(os.environ.get("JOBWIRE_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"JOBWIRE_TEST_SEED={seed}")  # shown when the test fails
    return random.Random(seed)


class Deployment:
    """Made by `deployment`."""

    def __init__(
        self, folder: Path, engine: Process, servers: list[Server], workers: Workers, proxies: list[Proxy]
    ) -> None:
        self.folder = folder
        self.engine = engine
        self.servers = servers
        self.workers = workers
        self.proxies = proxies
        self.submitted = folder / "submitted.history"
        """What its submitters do and hear."""
        self.release = folder / "release"
        """Jobs of kind "held", with this as their payload, run until it exists."""

    def recorder(self, client: str = "submitter") -> Recorder:
        """Writes to `submitted`."""
        return Recorder(self.submitted, client)

    async def finish(self, expected: set[str], *, dead: set[str] | None = None) -> str:
        """Waits until nothing is left to do and checks every rule, and that all jobs SUCCEEDED but those in `dead`.

        `expected`: the jobs that were acknowledged. Returns a line on what happened.
        """
        for server in self.servers:
            if server.has_ended():
                await server.start()
        async with jobwire.connect(target(self.servers), timeout=30) as client:
            await _drained(client)
            jobs = await _read_all(client, sorted(expected))
        events = read([self.submitted]) + self.workers.events()
        problems = check(events, {job.id: job for job in jobs})
        for job in jobs:
            if job.status != (FAILED if job.id in (dead or ()) else SUCCEEDED):
                problems.append(f"{job.id}: {jobwire.JobStatus.Name(job.status)}: {job.error}")
        problems += (f"logged by a server: {bug}" for server in self.servers for bug in server.bugs())
        assert not problems, "\n".join(problems)
        unsure = sum(event.call is Call.CREATE and event.outcome is Outcome.UNKNOWN for event in events)
        return (
            f"{len(jobs)} jobs, {len(self.workers.completed())} completions heard of, "
            f"{sum(job.losses for job in jobs)} leases lost, {sum(job.attempt - 1 for job in jobs)} redeliveries, "
            f"{unsure} Creates without an answer; every rule holds"
        )


def target(servers: list[Server], first: int = 0) -> str:
    """All servers as one gRPC target, one of them first."""
    return "ipv4:" + ",".join(server.address for server in (*servers[first:], *servers[:first]))


@asynccontextmanager
async def deployment(
    servers: int = 3,
    workers: int = 2,
    *,
    pause: float = 0.05,
    lease: float = 2.0,
    concurrency: int = 8,
    proxied_engine: bool = False,
    flags: tuple[str, ...] = (),
) -> AsyncIterator[Deployment]:
    """One engine whose every write reaches the disk, `servers` on it, and `workers` that know all servers.

    With `proxied_engine` the way from servers to engine is `Deployment.proxies[0]`.
    """
    async with AsyncExitStack() as later:
        stack = later.enter_context(ExitStack())
        engine = stack.enter_context(durable_engine())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobwire-")))
        url = engine.url
        proxies = []
        if proxied_engine:
            proxies = [await later.enter_async_context(Proxy.before(engine.socket_path))]
            url = f"redis://{proxies[0].address}/0"
        running = [Server(folder, free_port(), *flags, store_url=url) for _ in range(servers)]
        for server in running:
            stack.callback(_end, server)
        await asyncio.gather(*(server.start() for server in running))
        crew = Workers(folder, target(running), pause, stack, lease=lease, concurrency=concurrency)
        for number in range(workers):
            crew.target = target(running, number % servers)
            crew.start_another()
        try:
            yield Deployment(folder, engine, running, crew, proxies)
        finally:
            engine.resume()


@asynccontextmanager
async def loaded(
    at: Deployment, rate: float, rng: random.Random, *, through: Sequence[str] = ()
) -> AsyncIterator[Load]:
    """Submits jobs through every server for the extent of the context, or `through` other addresses of them."""
    addresses = through or [server.address for server in at.servers]
    async with Load.on(addresses, at.recorder(), rate, rng) as load:
        await wait_until(lambda: len(at.workers.completed()) >= 20, 60)
        yield load


def _end(server: Server) -> None:
    if not server.has_ended():
        server.kill()


async def _drained(client: jobwire.Client) -> None:
    """Returns when nothing is left to do; fails when there is less of it for a minute no more."""
    left, since = -1, time.monotonic()
    while left:
        stats = (await client.get_queue("q")).stats
        now = stats.ready + stats.scheduled + stats.running
        if left < 0 or now < left:
            left, since = now, time.monotonic()
        assert time.monotonic() < since + 60, f"nobody works these off: {stats}"
        await asyncio.sleep(0.05)


async def _read_all(client: jobwire.Client, ids: list[str]) -> list[jobwire.Job]:
    jobs: list[jobwire.Job] = []
    for start in range(0, len(ids), 500):
        found = await client.batch_get(ids[start : start + 500], full=True)
        jobs += (job for job in found if job is not None)
    return jobs
