"""The client in programs that fork, run several event loops, sit behind a proxy variable, or come back all at once."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import jobwire
import pytest
from jobwire_server.app import running
from jobwire_server.store.memory import MemoryStore

from tests.client.working import ended, working
from tests.proxy import Proxy
from tests.scenarios.scale import scaled
from tests.scenarios.servers import ROOT
from tests.wait import wait_until


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Of a server in memory."""
    async with running(MemoryStore()) as server:
        yield server.address


async def run(arguments: list[str], **environment: str) -> str:
    """What a program prints that must end well, and say nothing else."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    return out.decode()


FORK = """
import asyncio, multiprocessing, os, signal, sys
import jobwire

target, parent, how = sys.argv[1:]

def sync(name):
    with jobwire.connect_sync(target) as client:
        client.create(job_id=name, queue="q", ttl=60)

def aio(name):
    async def create():
        async with jobwire.connect(target) as client:
            await client.create(job_id=name, queue="q", ttl=60)
    asyncio.run(create())

def child(name):
    signal.alarm(10)  # one that hangs dies of it
    try:
        for kind in (sync, aio):
            kind(f"{name}-{kind.__name__}")
    except RuntimeError as error:
        assert "forked" in str(error)
        sys.exit(3)

if __name__ == "__main__":
    signal.alarm(50)
    if parent != "nothing":
        globals()[parent]("parent")
    if how == "os.fork":
        pid = os.fork()
        if not pid:
            try:
                child("child")
            except SystemExit as left:
                os._exit(left.code)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    else:
        process = multiprocessing.get_context(how).Process(target=child, args=("child",))
        process.start()
        process.join(40)
        code = process.exitcode
    sync("after")
    print(code)
"""

WORKS, REFUSED = "0\n", "3\n"


@pytest.mark.parametrize(
    ("parent", "how", "support", "outcome"),
    [
        ("nothing", "os.fork", "", WORKS),
        ("nothing", "fork", "", WORKS),
        ("sync", "os.fork", "", REFUSED),
        ("sync", "fork", "", REFUSED),
        ("aio", "os.fork", "", REFUSED),
        ("sync", "spawn", "", WORKS),
        ("aio", "forkserver", "", WORKS),
        ("sync", "os.fork", "1", WORKS),
        ("aio", "os.fork", "1", REFUSED),
    ],
)
async def test_e12_a_forked_child_works_or_is_told_why_not(
    address: str, tmp_path: Path, parent: str, how: str, support: str, outcome: str
) -> None:
    """Children forked from a process that had used gRPC hung at their first call (grpc #22624, #13873, #17093). The
    rule is in `connect`; who breaks it hears of it. (`support`: GRPC_ENABLE_FORK_SUPPORT, gRPC's own help.)
    """
    script = tmp_path / "program.py"  # a file, as "spawn" needs one
    script.write_text(FORK)
    more = {"GRPC_ENABLE_FORK_SUPPORT": support} if support else {}
    assert await run([str(script), address, parent, how], **more) == outcome
    async with jobwire.connect(address) as client:
        assert await client.exists("after")
        assert await client.exists("child-aio") == (outcome == WORKS)


LOOPS = """
import asyncio, gc, sys, threading
import jobwire

target, loop = sys.argv[1:]
if loop == "uvloop":
    import uvloop
    run = uvloop.run
else:
    run = asyncio.run

async def calls(name):
    async with jobwire.connect(target) as client:
        for number in range(20):
            await client.create(job_id=f"{name}-{number}", queue="q", ttl=60)
        assert sum(await asyncio.gather(*(client.exists(f"{name}-{number}") for number in range(20)))) == 20

async def leave_a_stream_open(name):
    client = jobwire.connect(target)
    stream = await client.claim_stream("none").__aenter__()
    await stream.read()
    open_streams.append((client, stream))

open_streams = []
for number in range(10):
    run(calls(f"row-{number}"))
threads = [threading.Thread(target=lambda n=n: [run(calls(f"thread-{n}-{m}")) for m in range(2)]) for n in range(2)]
for thread in threads:
    thread.start()
run(leave_a_stream_open("left"))
for thread in threads:
    thread.join()
run(calls("last"))
print("ok", flush=True)
sys.exit(0)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_e13_event_loops_beside_and_after_each_other_work(address: str, loop: str) -> None:
    """Loops of one process shared a poller, and the end of one hung the others (grpc #25364, #34139, weaviate #1180).
    What the poller writes about it (BlockingIOError, grpc #42357) is noise.
    """
    if importlib.util.find_spec(loop) is None:
        pytest.skip("uvloop is not installed")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOOPS, address, loop), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, out) == (0, b"ok\n"), err.decode()
    async with jobwire.connect(address) as client:
        assert (await client.get_queue("q")).stats.ready == 20 * (10 + 4 + 1)


PROXIED = """
import sys
import jobwire
for target in sys.argv[1:]:
    with jobwire.connect_sync(target, timeout=5) as client:
        print(client.exists("a"))
"""


@pytest.mark.parametrize("exempt", ["", "example.org"])
async def test_e17_proxy_variables_leave_local_targets_alone(address: str, exempt: str) -> None:
    """A proxy in the environment was asked for localhost, and "failed to connect to all addresses" (grpc #29718, #9989,
    #15942).
    """
    port = address.rpartition(":")[2]
    async with Proxy.before("127.0.0.1:1") as nowhere:
        proxy = f"http://{nowhere.address}"
        names = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        targets = [f"127.0.0.1:{port}", f"localhost:{port}", f"dns:///localhost:{port}", f"ipv4:127.0.0.1:{port}"]
        out = await run(["-c", PROXIED, *targets], **dict.fromkeys(names, proxy), no_proxy=exempt, NO_PROXY=exempt)
        assert out == "False\n" * len(targets)
        assert nowhere.connections == 0


async def test_e21_workers_come_back_one_after_another(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A fleet that reconnected after a fixed delay hit the server all at once as it warmed up (durabletask-dotnet #708,
    ioredis #1854).
    """
    caplog.set_level("INFO", "jobwire.worker")
    count = scaled(60)
    store = MemoryStore()
    async with contextlib.AsyncExitStack() as stack:
        async with running(store) as server:
            address = server.address
            client = await stack.enter_async_context(jobwire.connect(address))
            for _ in range(count):
                worker = jobwire.Worker(client, queues="q", concurrency=1)

                @worker.handler()
                async def handle(job: jobwire.JobContext) -> None: ...

                await stack.enter_async_context(working(worker))

            def opened() -> list[float]:
                return [record.created for record in caplog.records if "claim stream opened" in record.message]

            await wait_until(lambda: len(opened()) == count)
        caplog.clear()
        await asyncio.sleep(3)  # as long as a restart takes, so that pauses have grown
        async with running(store, address=address):
            await wait_until(lambda: len(opened()) == count, 60)
            times = sorted(opened())
            spread = times[-1] - times[0]
            most = max(sum(at <= other < at + 0.2 for other in times) for at in times)
            with capsys.disabled():
                print(f"\nE21: {count} workers back over {spread:.1f} s, at most {most} of them within 0.2 s")
            assert spread >= 1.0
            assert most <= count / 2
            await ended(client, await client.create(queue="q", ttl=60))
