"""The demo itself: submits, looks on, kills, gathers, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import jobwire
from jobwire.v1 import job_pb2

from . import indexer, journal, processes
from .folder import Piece, pieces
from .processes import DemoError
from .report import Report
from .screen import Screen, Sight, WorkerSight

WORKERS = ("worker-1", "worker-2")
VICTIM = WORKERS[1]
KILL_AFTER = 0.4
RETENTION_SECONDS = 3_600
LABEL_BYTES = 256
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 30.0

SLOTS = len(WORKERS) * indexer.CONCURRENCY

# Counting words is over in a blink. Each job therefore also pauses, so long that the work takes about this long in all.
SHOW_SECONDS = 3.0
PAUSE_SECONDS_MAX = 0.5


async def run(folder: Path, screen: Screen) -> Report:
    """Runs everything. Raises `DemoError`."""
    work = pieces(folder)
    if not work:
        raise DemoError(f"no text in {folder}")
    pause = min(PAUSE_SECONDS_MAX, SHOW_SECONDS * SLOTS / len(work))
    async with contextlib.AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobwire-demo-")))
        server = stack.enter_context(processes.server(scratch))
        target = await processes.address(server, scratch)
        screen.say(f"server (process {server.pid}) on {target}, with an embedded Valkey of its own")
        crew = {}
        for name in WORKERS:
            crew[name] = stack.enter_context(
                processes.worker(scratch, name, target, scratch / f"{name}.journal", pause)
            )
            screen.say(f"{name} (process {crew[name].pid}), {indexer.CONCURRENCY} jobs at a time")
        client = await stack.enter_async_context(jobwire.connect(target))
        return await _Demo(folder, client, crew, scratch, screen).run(work, pause)


class _Demo:
    def __init__(
        self,
        folder: Path,
        client: jobwire.Client,
        crew: dict[str, subprocess.Popen[bytes]],
        scratch: Path,
        screen: Screen,
    ) -> None:
        self._folder = folder
        self._client = client
        self._crew = crew
        self._journals = {name: scratch / f"{name}.journal" for name in crew}
        self._screen = screen
        self._killed_holding = 0

    async def run(self, work: list[Piece], pause: float) -> Report:
        """From the first job's submission to the report."""
        began = time.monotonic()
        parent = await self._submit(work)
        self._screen.say(
            f"submitted a parent job and {len(work):,} children; each counts the words of a file"
            f" and then pauses {pause * 1_000:.0f} ms, so that there is something to see"
        )
        await self._until_done(parent.id, len(work))
        children = {job.id: job async for job in self._client.list_children(parent.id, full=True, page_size=1_000)}
        words = await self._gather(parent.id, children)
        completions = journal.read(self._journals.values(), journal.COMPLETED)
        return Report(
            folder=_label(str(self._folder)),
            jobs=len(work),
            deliveries=sum(job.attempt for job in children.values()),
            redeliveries=sum(max(0, job.attempt - 1) for job in children.values()),
            lost=len(work) - sum(job.status == job_pb2.JOB_STATUS_SUCCEEDED for job in children.values()),
            completed_twice=sum(times > 1 for times in completions.values()),
            killed_holding=self._killed_holding,
            words=words.total(),
            commonest=words.most_common(10),
            seconds=round(time.monotonic() - began, 2),
        )

    async def _submit(self, work: list[Piece]) -> job_pb2.Job:
        # State only: this process owns the parent, no worker claims it.
        parent = await self._client.create(
            kind="index.folder",
            labels={"folder": _label(str(self._folder))},
            ttl=RETENTION_SECONDS,
            status=job_pb2.JOB_STATUS_RUNNING,
        )
        creations = [
            jobwire.new_job(
                queue=indexer.QUEUE,
                kind=indexer.KIND,
                parent=parent.id,
                payload=piece.text,
                content_type="text/plain",
                labels={"file": _label(piece.name)},
                ttl=RETENTION_SECONDS,
            )
            for piece in work
        ]
        for outcome in await self._client.create_many(creations):
            if isinstance(outcome, jobwire.JobwireError):
                raise DemoError(f"a job was refused: {outcome.message}")
        return parent

    async def _until_done(self, parent_id: str, jobs: int) -> None:
        ended = -1
        deadline = 0.0
        while ended < jobs:
            await asyncio.sleep(LOOK_SECONDS)
            counts = (await self._client.get(parent_id)).child_counts
            now_ended = counts.succeeded + counts.failed + counts.cancelled
            if now_ended > ended:
                ended, deadline = now_ended, time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                self._screen.say(f"no job ended for {PATIENCE_SECONDS:.0f} s: giving up")
                return
            self._screen.show(self._sight(jobs, ended))
            # In the middle, but of few jobs while there are still enough to be held by the victim.
            if not self._killed_holding and min(KILL_AFTER * jobs, jobs - SLOTS) <= ended < jobs:
                await self._try_kill(parent_id)

    async def _try_kill(self, parent_id: str) -> None:
        """Kills the victim if it holds a job. It is stopped while we look, lest it finish between look and kill."""
        victim = self._crew[VICTIM]
        victim.send_signal(signal.SIGSTOP)
        held = [
            job
            async for job in self._client.list_children(parent_id, page_size=1_000)
            if job.status == job_pb2.JOB_STATUS_RUNNING and job.worker_id == VICTIM
        ]
        if not held:
            victim.send_signal(signal.SIGCONT)
            return
        victim.kill()
        self._killed_holding = len(held)
        self._screen.say(
            f"kill -9 of {VICTIM} (process {victim.pid}), which held {len(held)} jobs;"
            f" they come back when their leases of {indexer.LEASE_SECONDS:.0f} s run out"
        )

    def _sight(self, jobs: int, ended: int) -> Sight:
        return Sight(
            jobs=jobs,
            ended=ended,
            workers=[
                WorkerSight(
                    name=name,
                    state="running" if worker.poll() is None else "killed",
                    deliveries=journal.read([self._journals[name]], journal.DELIVERED).total(),
                    completions=journal.read([self._journals[name]], journal.COMPLETED).total(),
                )
                for name, worker in self._crew.items()
            ],
        )

    async def _gather(self, parent_id: str, children: dict[str, job_pb2.Job]) -> Counter[str]:
        words: Counter[str] = Counter()
        for job in children.values():
            words.update(json.loads(job.result or b"{}"))
        summary = {"words": words.total(), "commonest": words.most_common(10)}
        await self._client.update(
            parent_id,
            status=job_pb2.JOB_STATUS_SUCCEEDED,
            result=json.dumps(summary, ensure_ascii=False),
        )
        return words


def _label(path: str) -> str:
    """A path as a label can hold it: UTF-8, its end if it is long."""
    return path.encode("utf-8", "replace")[-LABEL_BYTES:].decode("utf-8", "ignore")
