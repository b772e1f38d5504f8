"""Every script: what the engine accepts, what it does when forgotten, what it reads before it writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.store.redis import RedisStore, loader, scripts

from tests.engines import Engine
from tests.requests import claim, create

LUA = Path(loader.__file__).parent / "lua"
SCRIPTS = {script.name: script for script in scripts.ALL}


def test_every_verb_file_is_in_the_table_or_composed() -> None:
    part_of_settle = {"complete", "fail", "release"}
    composed = {"hand_off"}
    assert {path.stem for path in LUA.glob("*.lua")} | composed == set(SCRIPTS) | part_of_settle


def test_every_code_is_answered_by_some_script() -> None:
    text = "".join(path.read_text() for path in LUA.rglob("*.lua"))
    assert {code for code in scripts.Code if f"CODE_{code.name}" not in text} == set()
    assert set(re.findall(r"CODE_(\w+)", text)) <= {code.name for code in scripts.Code}


@pytest.mark.parametrize("variant", ["plain", "rehearsed"])
@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_engine_compiles_it(engine: Engine, name: str, variant: str) -> None:
    source = getattr(SCRIPTS[name], variant)
    async with engine.client() as client:
        assert (await client.script_load(source.text)) in (source.sha, source.sha.encode())


async def test_scripts_heal_after_the_cache_is_flushed_under_load(store: RedisStore, engine: Engine) -> None:
    stop = asyncio.Event()
    flushes = 0

    async def flush() -> None:
        nonlocal flushes
        async with engine.client() as client:
            while not stop.is_set():
                await client.script_flush()
                flushes += 1

    async def live(number: int) -> int:
        """One job's whole life; how many of its claims found a job."""
        await store.create(create(f"job-{number}", "q"))
        [claimed] = (await store.claim(claim("q"))).jobs
        lease = store_pb2.LeaseRef(id=claimed.job.id, token=claimed.lease_token)
        assert not (await store.complete(store_pb2.CompleteRequest(lease=lease))).repeated_call
        return claimed.job.attempt

    flusher = asyncio.create_task(flush())
    attempts = [await asyncio.gather(*(live(start + i) for i in range(20))) for start in range(0, 400, 20)]
    stop.set()
    await flusher

    assert flushes > 20
    assert {attempt for batch in attempts for attempt in batch} == {1}


# -- reads before writes ---------------------------------------------------------------------------------------------


async def _monitored(engine: Engine, ready: asyncio.Event) -> list[list[tuple[str, str]]]:
    """The commands of each script run, as (command, key), until somebody says ECHO end."""
    runs: list[list[tuple[str, str]]] = []
    async with engine.client() as client, client.monitor() as monitor:
        ready.set()
        while True:
            message = await monitor.next_command()
            command, *arguments = re.findall(r"\S+", message["command"])
            if (command, arguments) == ("ECHO", ["end"]):
                return runs
            if command in ("EVALSHA", "EVAL"):
                runs.append([])
            elif message["client_type"] == "lua" and arguments:
                runs[-1].append((command, arguments[0]))


@pytest.fixture
async def rehearsing(engine: Engine) -> AsyncIterator[RedisStore]:
    """A store as on a cluster: it rehearses."""
    await engine.flush()
    store = await RedisStore.connect(engine.url, rehearse=True, sweep_interval_ms=0)
    yield store
    await store.close()


async def test_a_rehearsed_script_reads_every_key_before_its_first_write(
    rehearsing: RedisStore, engine: Engine
) -> None:
    ready = asyncio.Event()
    monitor = asyncio.create_task(_monitored(engine, ready))
    await ready.wait()
    await _whole_lives(rehearsing)
    async with engine.client() as client:
        await client.echo("end")
    runs = await monitor

    writing = 0
    for run in runs:
        read: set[str] = set()
        wrote = False
        for command, key in run:
            if command == "PUBLISH":
                continue
            if command in loader._WRITES:
                wrote = True
            if wrote:
                assert key in read, f"{command} {key} after the first write, never read before: {run}"
            else:
                read.add(key)
        writing += wrote
    assert writing > 20


async def _whole_lives(store: RedisStore) -> None:
    """Every writing verb, on families, dedup keys, tenants, priorities, waiters and watchers."""
    root = create("root", "q")
    await store.create(root)
    batch = store_pb2.BatchCreateRequest()
    for number in range(12):
        child = create(queue="q", tenant=f"t{number % 3}", parent_id="root", priority=number % 2)
        if number % 4 == 0:
            child.job.dedup.key = f"k{number}"
        if number % 5 == 0:
            child.delay.nanos = 1_000_000
        batch.requests.append(child)
    ids = [result.response.job.id for result in (await store.batch_create(batch)).results]
    await store.get(store_pb2.GetRequest(id=ids[1]), watch=True)
    for job_id in ids[:3]:
        update = store_pb2.UpdateRequest(id=job_id, priority=5)
        update.ttl.seconds = 5
        update.delay.seconds = 0
        await store.update(update)
    await store.sweep(0)
    settlements = store_pb2.BatchSettleRequest()
    for index, claimed in enumerate((await store.claim(claim("q", max_jobs=9))).jobs):
        lease = store_pb2.LeaseRef(id=claimed.job.id, token=claimed.lease_token)
        beat = store_pb2.LeaseHeartbeat(lease=lease)
        beat.progress.fraction = 0.5
        await store.heartbeat(store_pb2.HeartbeatRequest(leases=[beat]))
        if index % 3 == 0:
            settlements.settlements.add().complete.lease.CopyFrom(lease)
        elif index % 3 == 1:
            settlements.settlements.add().fail.lease.CopyFrom(lease)
        else:
            settlements.settlements.add().release.lease.CopyFrom(lease)
    await store.batch_settle(settlements)
    reclaim = store_pb2.ReclaimStaleRequest()
    reclaim.heartbeat_before.seconds = 4_000_000_000
    await store.claim(claim("q", max_jobs=2))
    await store.reclaim_stale(reclaim)
    await store.cancel(store_pb2.CancelRequest(id=ids[5]))
    for job_id in ids:
        await store.delete(store_pb2.DeleteRequest(id=job_id))
    await store.claim_from(0, claim("q", max_jobs=5), 5, waiting=True)
    await store.look(0, [("default", "q")])
    await store.create(create("again", "q"))
    await store.hand_off(create("handed", "q"), claim("q", max_jobs=2), 2, receipt_ms=1_000)
    await store.cancel(store_pb2.CancelRequest(id="handed"))
    await store.sweep(0)
