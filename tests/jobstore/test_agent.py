"""A real agent, `examples/agent`, as replicas that share their state: started, asked, cancelled, killed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.processes import free_port
from tests.jobstore.agents import Agent, Replica, Reply, running_agent

pytestmark = pytest.mark.jobstore

PAUSE = 0.02
ENDLESS = [f"t{number}" for number in range(3_000)]
"""Targets of a scan that is still under way whenever a test looks: a minute's worth."""

SHARED = ("redis", "unix", "grpc")


@pytest.fixture(params=SHARED)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    """Two replicas on every backend that can be shared."""
    async with running_agent(request.param) as running:
        yield running


async def started(replica: Replica | Agent, targets: list[str], pause: float = 0) -> str:
    """The path of a scan that this replica has begun."""
    reply = await replica.ask("POST", "/scans", {"targets": targets, "pause": pause})
    assert (reply.status, reply.body["status"]) == (201, "pending"), reply
    return f"/scans/{reply.body['job_id']}"


@pytest.mark.parametrize(("backend", "replicas"), [("memory", 1), *((backend, 2) for backend in SHARED)])
async def test_the_same_agent_runs_on_every_backend(backend: str, replicas: int) -> None:
    async with running_agent(backend, replicas) as agent:
        paths = [await started(agent, ["a", "b", f"c{number}"]) for number in range(4)]
        for number, path in enumerate(paths):
            done = (await agent.until(path, "succeeded")).body
            assert done["result"] == ["A", "B", f"C{number}"]
            for _ in agent.replicas:
                assert (await agent.ask("GET", path)).body == done
        for _ in agent.replicas:
            ids = (await agent.ask("GET", "/scans")).body["ids"]
            assert sorted(f"/scans/{scan_id}" for scan_id in ids) == sorted(paths)

        assert (await agent.ask("DELETE", paths[0])).status == 409
        assert (await agent.ask("POST", f"{paths[0]}/resume")).status == 409
        assert (await agent.ask("GET", "/scans/nobody")).status == 404
        assert (await agent.ask("DELETE", "/scans/nobody")).status == 404
        assert (await agent.ask("GET", f"/scans/{'x' * 300}")).status == 422
        assert (await agent.ask("POST", "/scans", {"targets": [1], "pause": 0})).status == 422


async def test_a_killed_replica_takes_no_state_along(agent: Agent) -> None:
    """The other replica knows how far the scan had come, and goes on from there."""
    first, second = agent.replicas
    targets = [f"t{number}" for number in range(60)]
    path = await started(first, targets, 0.05)
    before = await agent.until_found(path, 3)
    assert (await second.ask("GET", path)).body["status"] == "running"

    first.kill()
    after = await agent.ask("GET", path)
    found = after.body["payload"]["found"]
    assert after.body["status"] == "running"
    assert len(before.body["payload"]["found"]) <= len(found) < len(targets)
    assert (await agent.ask("GET", "/scans")).body["ids"] == [after.body["job_id"]]
    # Nobody works at it: what the second replica does in the meantime changes nothing.
    await second_scan_done(second)
    assert (await agent.ask("GET", path)).etag == after.etag

    resumed = await agent.ask("POST", f"{path}/resume")
    assert (resumed.status, resumed.body["payload"]["found"]) == (200, found)
    done = (await agent.until(path, "succeeded")).body
    assert done["result"] == [target.upper() for target in targets]
    assert done["created_at"] == before.body["created_at"]


async def second_scan_done(replica: Replica) -> None:
    """A whole scan of this replica, as a span of time in which another one would have moved on."""
    path = await started(replica, ["x"] * 10, PAUSE)
    await Agent([replica], None, None).until(path, "succeeded")


async def test_a_cancel_meets_progress(agent: Agent) -> None:
    """The scan runs at one replica, the cancel arrives at the other: the etag decides, and progress stops for good."""
    first, second = agent.replicas
    path = await started(first, ENDLESS, PAUSE)
    stale = await second.ask("GET", path)
    await agent.until_found(path, 2)
    refused = await second.ask("DELETE", path, if_match=stale.etag)
    assert refused.status == 412
    assert (await second.ask("GET", path)).body["status"] == "running"

    cancelled = await second.ask("DELETE", path)
    assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    await second_scan_done(first)
    last = await first.ask("GET", path)
    assert (last.etag, last.body) == (cancelled.etag, cancelled.body)
    assert (await second.ask("POST", f"{path}/resume")).status == 409


async def test_a_cancel_of_the_version_that_was_seen(agent: Agent) -> None:
    """With If-Match a cancel holds against exactly what its sender looked at."""
    path = await started(agent.replicas[0], ENDLESS, 3_600)  # stands still once it runs
    seen = await agent.until(path, "running")
    replies = await asyncio.gather(*(agent.ask("DELETE", path, if_match=seen.etag) for _ in range(8)))
    statuses = sorted(reply.status for reply in replies)
    assert statuses[0] == 200
    # The others come to read either the old version and lose, or the cancelled scan.
    assert set(statuses[1:]) <= {409, 412}


async def test_one_replica_resumes(agent: Agent) -> None:
    """Many ask both replicas to go on with the version that they saw: one does."""
    path = await started(agent.replicas[0], ENDLESS, 3_600)
    seen = await agent.until(path, "running")
    replies: list[Reply] = await asyncio.gather(
        *(agent.ask("POST", f"{path}/resume", if_match=seen.etag) for _ in range(10))
    )
    assert sorted(reply.status for reply in replies) == [200, *[412] * 9]
    [winner] = (reply for reply in replies if reply.status == 200)
    assert (await agent.ask("GET", path)).body["payload"]["run"] == winner.body["payload"]["run"]


async def test_who_lost_a_scan_stops(agent: Agent) -> None:
    """The scan is taken over while the replica that had it lives: from then on only the new one's progress counts."""
    first, second = agent.replicas
    targets = [f"t{number}" for number in range(40)]
    path = await started(first, targets, PAUSE)
    await agent.until_found(path, 2)
    resumed = await second.ask("POST", f"{path}/resume")
    counts = []
    while True:
        seen = (await agent.ask("GET", path)).body
        assert seen["payload"]["run"] == resumed.body["payload"]["run"]
        counts.append(len(seen["payload"]["found"]))
        if seen["status"] == "succeeded":
            break
    assert counts == sorted(counts)
    assert seen["result"] == [target.upper() for target in targets]


@pytest.mark.parametrize("backend", ["redis", "grpc"])
async def test_an_outage_is_a_503_and_heals(backend: str) -> None:
    """While nothing can be stored the agent says so; later all is there, and the scan goes on by itself."""
    async with running_agent(backend) as agent:
        assert agent.engine is not None
        targets = [f"t{number}" for number in range(20)]
        path = await started(agent.replicas[0], targets, 0.1)
        await agent.until_found(path, 1)

        agent.engine.kill()
        requests = (("GET", path), ("DELETE", path), ("POST", f"{path}/resume"), ("GET", "/scans"))
        replies = await asyncio.gather(
            *(agent.ask(*request) for request in requests), agent.ask("POST", "/scans", {"targets": ["a"], "pause": 0})
        )
        assert [reply.status for reply in replies] == [503] * len(replies)
        assert all(reply.headers["retry-after"] == "1" for reply in replies)

        agent.engine.start()
        done = (await agent.until(path, "succeeded")).body
        assert done["result"] == [target.upper() for target in targets]


async def test_a_server_that_is_away_is_a_503_too() -> None:
    async with running_agent("grpc") as agent:
        assert agent.server is not None
        path = await started(agent, ["a"])
        done = await agent.until(path, "succeeded")
        agent.server.kill()
        assert (await agent.ask("GET", path)).status == 503
        await agent.server.start()
        assert (await agent.until(path, "succeeded")).body == done.body


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://user:sesame@127.0.0.1:{port}/0", "cannot start: the job store: the engine does not answer"),
        ("grpc://127.0.0.1:{port}", "cannot start: the job store: failed to connect"),
        ("reddis://user:sesame@127.0.0.1:{port}/0", "JOB_STORE_URL must begin with"),
        ("redis+cluster://user:sesame@127.0.0.1:{port}", "redis+cluster:// is not served by this release"),
    ],
)
async def test_no_replica_starts_without_its_store(url: str, reason: str) -> None:
    """It ends with one line that says why, and no password in it."""
    with tempfile.TemporaryDirectory() as folder:
        replica = Replica(Path(folder), url.format(port=free_port()))
        try:
            assert await replica.ended() != 0
        finally:
            replica.kill()
        assert [reason in line for line in replica.log.splitlines()].count(True) == 1, replica.log
        assert "Traceback" not in replica.log.partition("Traceback")[2], "a chain of causes"
        assert "sesame" not in replica.log


@pytest.mark.parametrize("backend", ["memory", *SHARED])
async def test_a_replica_ends_in_order(backend: str) -> None:
    """SIGTERM in the middle of a scan: connections are closed, nothing is left pending, no warning is written."""
    async with running_agent(backend, 1) as agent:
        [replica] = agent.replicas
        path = await started(replica, ENDLESS, PAUSE)
        await agent.until_found(path, 2)
        replica.terminate()
        await replica.ended()
        assert "Application shutdown complete." in replica.log
        for trouble in ("Traceback", "Warning", "never retrieved", "was destroyed"):
            assert trouble not in replica.log, replica.log
