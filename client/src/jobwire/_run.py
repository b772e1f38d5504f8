"""One delivered job in a worker, from its arrival to its settlement."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from jobwire.v1 import job_pb2, store_pb2

from ._client import Client
from ._context import JobContext
from ._errors import DeadlineExceeded, JobwireError, LeaseLost, NotFound, ResourceExhausted, Unavailable
from ._leases import HeldLease
from ._outcome import Result, failed, raised, released, returned
from ._retry import jittered
from ._tracing import AttemptSpan

log = logging.getLogger("jobwire.worker")

_PAUSE_FIRST_SECONDS, _PAUSE_CAP_SECONDS = 0.1, 5.0


class Run:
    """One attempt: it waits for a free slot, then its handler runs, then it is settled while the lease lasts."""

    def __init__(self, job: job_pb2.Job, lease: HeldLease, context: JobContext) -> None:
        self.job = job
        self.lease = lease
        self.context = context
        self.begun = False
        self.in_thread = False
        """The handler is a plain function, and running."""
        self.sure = asyncio.Event()
        """Set once a lease in doubt is known to be held."""
        self.span = AttemptSpan(job)
        if not lease.doubtful:
            self.sure.set()
        self._task: asyncio.Task[None] | None = None
        self._working = False
        self._give_back = False
        self._stop_asked = False

    def __str__(self) -> str:
        return f"job={self.job.namespace}/{self.job.id} kind={self.job.kind} attempt={self.job.attempt}"

    def start(self, client: Client, handle: Callable[[Run], Awaitable[Result]]) -> asyncio.Task[None]:
        """Runs in a task of its own. `handle` waits for a slot, sets `begun`, begins the span and calls the handler."""
        self._task = asyncio.create_task(self._work(client, handle), name=f"jobwire-{self.job.id}")
        return self._task

    def lost(self) -> None:
        """The lease is lost: the handler is cancelled, and nothing settled."""
        self._interrupt()

    def ask_to_stop(self) -> None:
        """Somebody cancelled the job: the handler is cancelled, and the attempt fails, which ends the job as CANCELLED.

        A plain function cannot be cancelled, so how it ends counts; if that takes too long, the server takes the lease.
        """
        if not self._stop_asked:
            self._stop_asked = True
            self.context.cancelled = True
            if not self.in_thread:
                self._interrupt()

    def give_back(self) -> None:
        """The worker must end: the handler is cancelled, and the job released."""
        if not self._give_back:
            self._give_back = True
            self._interrupt()

    def _interrupt(self) -> None:
        self.context.cancelled = True
        # A task cancelled before its first step would never take it, and never settle.
        if self._task is not None and self._working and not self.lease.settling:
            self._task.cancel()

    async def _work(self, client: Client, handle: Callable[[Run], Awaitable[Result]]) -> None:
        self._working = True
        try:
            await self._attempt(client, handle)
        finally:
            self.span.end()

    async def _attempt(self, client: Client, handle: Callable[[Run], Awaitable[Result]]) -> None:
        try:
            if self.context.cancelled:
                raise asyncio.CancelledError
            await self.sure.wait()
            settlement = returned(self.lease.ref, await handle(self))
        except asyncio.CancelledError as error:
            settlement = self._interrupted(error)
        except BaseException as error:  # a handler that exits, or raises what no one expects, must not take us along
            settlement = raised(self.lease.ref, self.job, error)
            if settlement.HasField("fail"):
                self.span.raised(error)
        if not self.lease.lost:
            self.lease.settling = True
            await self._settle(client, settlement)
        elif not self.lease.disowned:
            # Nobody but us knows, and the server would count the job against this worker until it hears from it.
            with contextlib.suppress(JobwireError):
                await client.settle(released(self.lease.ref))

    def _interrupted(self, error: asyncio.CancelledError) -> store_pb2.Settlement:
        if self._stop_asked:
            stopped = job_pb2.JobError(code="CANCELLED", message="the job was cancelled while running", retryable=False)
            return failed(self.lease.ref, stopped)
        if self._give_back or self.lease.lost:
            return released(self.lease.ref)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error  # the whole program is being taken down
        return raised(self.lease.ref, self.job, error)  # something inside the handler was cancelled, not the handler

    async def _settle(self, client: Client, settlement: store_pb2.Settlement) -> None:
        """Settles while the lease lasts. The server may refuse the content; then the attempt failed, saying so."""
        verb = settlement.WhichOneof("verb")
        refused = False
        step = 0
        while not self.lease.lost:
            try:
                await client.settle(settlement)
            except (LeaseLost, NotFound) as error:
                log.warning("lease lost: %s: %s", self, error.message)
                return
            except JobwireError as error:
                if _may_pass(error):
                    pause = (error.retry_after or 0.0) + jittered(_PAUSE_CAP_SECONDS, _PAUSE_FIRST_SECONDS, step)
                    step += 1
                    log.warning("not settled yet: %s verb=%s code=%s: %s", self, verb, error.code.name, error.message)
                    await asyncio.sleep(min(pause, max(0.0, self.lease.deadline - time.monotonic())))
                elif refused:
                    log.error("not settled: %s verb=%s: %s", self, verb, error.message)
                    return
                else:
                    refused = True
                    log.error("refused: %s verb=%s: %s", self, verb, error.message)
                    what = job_pb2.JobError(code="REFUSED", message=f"{verb} was refused: {error.message}")
                    settlement = failed(self.lease.ref, what)
                    verb = "fail"
            else:
                self.span.settled(verb or "", settlement.fail.error.code)
                if verb == "fail":
                    log.warning("failed: %s code=%s", self, settlement.fail.error.code)
                else:
                    log.debug("settled: %s verb=%s", self, verb)
                return


def _may_pass(error: JobwireError) -> bool:
    """Whether the same call may succeed later. A RESOURCE_EXHAUSTED without a reason is gRPC's: too large."""
    return isinstance(error, Unavailable | DeadlineExceeded) or (
        isinstance(error, ResourceExhausted) and bool(error.reason)
    )
