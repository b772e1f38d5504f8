"""Running workers in tests: as a task, as a thread with an event loop of its own, as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import jobwire

from tests.wait import wait_until

ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def working(worker: jobwire.Worker) -> AsyncIterator[asyncio.Task[None]]:
    """A worker as a task of this loop, stopped at the end."""
    task = asyncio.create_task(worker.serve())
    try:
        yield task
    finally:
        worker.stop()
        await task


@contextlib.asynccontextmanager
async def working_apart(worker: jobwire.Worker) -> AsyncIterator[None]:
    """A worker whose event loop is not this one, so that its handlers may block theirs."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await worker.serve()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(worker.stop)
        await asyncio.to_thread(thread.join)


@contextlib.contextmanager
def worker_process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `script`; killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def status_of(client: jobwire.Client, job_id: str) -> str:
    """A job's status, without its prefix."""
    return jobwire.JobStatus.Name((await client.get(job_id)).status).removeprefix("JOB_STATUS_")


async def ended(client: jobwire.Client, job: jobwire.Job, status: str = "SUCCEEDED") -> jobwire.Job:
    """The job, in full, when it has ended, as it should."""
    now = await client.get(job.id, full=True, wait=60)
    assert jobwire.JobStatus.Name(now.status) == f"JOB_STATUS_{status}", now
    return now


async def receipted(client: jobwire.Client, job: jobwire.Job) -> None:
    """Returns when the server has had a heartbeat of the running job."""

    async def was_beaten() -> bool:
        now = await client.get(job.id)
        return now.heartbeat_time.ToNanoseconds() > now.start_time.ToNanoseconds()

    await wait_until(was_beaten, seconds=30)
