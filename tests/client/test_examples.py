"""The examples run, as their readers run them."""

from __future__ import annotations

import asyncio
import signal
import sys

from tests.client.working import ROOT


async def start(name: str, address: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(ROOT / "examples" / name), address, stdout=asyncio.subprocess.PIPE
    )


async def output(process: asyncio.subprocess.Process) -> list[str]:
    async with asyncio.timeout(30):
        stdout, _ = await process.communicate()
    assert process.returncode == 0
    return stdout.decode().splitlines()


async def test_producer_and_worker(address: str) -> None:
    worker = await start("worker.py", address)
    lines = await output(await start("producer.py", address))
    worker.send_signal(signal.SIGTERM)
    assert await output(worker) == []
    assert lines[0].endswith("JOB_STATUS_SUCCEEDED PAGE 0")
    assert lines[0] == lines[-1]
    assert len(set(lines)) == 20


async def test_bare_stub(address: str) -> None:
    [line] = await output(await start("bare_stub.py", address))
    assert line.endswith("JOB_STATUS_SUCCEEDED hello world")
