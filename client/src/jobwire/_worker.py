"""The worker: claims jobs over a stream and runs their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import grpc

from jobwire.v1 import job_pb2, store_pb2

from ._client import Client, connect
from ._context import JobContext
from ._feed import Feed
from ._leases import HeldLease, LeaseKeeper, News
from ._outcome import Release, Result, Retry
from ._requests import DEFAULT_NAMESPACE, Queues, Span, claim_stream_request, queue_refs, seconds
from ._run import Run

log = logging.getLogger("jobwire.worker")

_RELEASE_SECONDS = 5.0
_RECEIPT_SECONDS = 10.0
_NO_HANDLER_FIRST_SECONDS, _NO_HANDLER_CAP_SECONDS = 10.0, 600.0

Handler = Callable[[JobContext], Awaitable[Result]] | Callable[[JobContext], Result]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Worker:
    """Runs jobs of some queues, each by the handler of its kind.

        worker = jobwire.Worker("127.0.0.1:50051", queues=["interactive", "batch"], concurrency=10)

        @worker.handler("ocr.page")
        async def ocr(job: jobwire.JobContext) -> bytes: ...

        worker.run()

    A handler may be a coroutine function, or a plain function, which runs in a thread. What it returns becomes the
    job's result; an exception fails the attempt (see `NonRetryable`, `Retry`, `Release`). Delivery is at least once:
    make handlers idempotent.

    Leases are kept by a thread of their own, so a handler may block the event loop. When a lease is lost all the same,
    its handler is cancelled and its outcome thrown away. A plain function cannot be cancelled: it keeps its thread
    until it returns; let it look at `JobContext.cancelled`.

    When somebody cancels a running job, `JobContext.cancelled` is set and a coroutine is cancelled, which fails the
    attempt and so leaves the job CANCELLED. A handler that finishes anyway completes it: the job SUCCEEDED. A plain
    function that stops for it raises something. After the grace that the Cancel gave, the lease is lost.

    Each job's receipt is sent as it arrives, before its handler starts: of a worker that is frozen or cut off, jobs on
    their way go elsewhere within 10 s, and only the third such miss in a row counts as a loss.

    `stop` (SIGTERM and SIGINT under `run`) drains: nothing more is claimed, what has not begun is given back at once,
    running handlers have `drain_grace` to end, then they are cancelled and their jobs given back. A second `stop` ends
    the grace. A worker serves once.

    Args:
        server: The server's gRPC target, or a Client (which belongs to the event loop that will run `serve`).
        queues: 1 to 32, served in this order.
        concurrency: How many handlers run at once.
        max_in_flight: How many jobs may be held, at most 1,000. Default: `concurrency`, so that no job waits here
            behind a busy handler while another worker is idle.
        worker_id: Shown to operators; default: drawn from host, process and chance.
        namespace: Of queues named by a plain string.
        lease_duration: Of jobs that ask for none; default 30 s. A worker that dies holds its jobs back that long.
        drain_grace: Default 30 s.
        tls: As in `connect`; not together with a Client.
    """

    def __init__(
        self,
        server: Client | str,
        *,
        queues: Queues,
        concurrency: int = 10,
        max_in_flight: int | None = None,
        worker_id: str = "",
        namespace: str = DEFAULT_NAMESPACE,
        lease_duration: Span | None = None,
        drain_grace: Span = 30.0,
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._server = server
        self._tls = tls
        self._queues = queue_refs(queues, namespace)
        self._concurrency = concurrency
        self._max_in_flight = max_in_flight or concurrency
        self._worker_id = worker_id
        self._lease_duration = lease_duration
        lease_seconds = _RECEIPT_SECONDS if lease_duration is None else seconds(lease_duration)
        self._receipt_timeout = min(_RECEIPT_SECONDS, lease_seconds)
        self._drain_grace = seconds(drain_grace)
        self._handlers: dict[str | None, Handler] = {}
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(concurrency)
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._drained = False
        """The stream has ended for good."""

    def handler(self, kind: str | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Registers the decorated function for jobs of `kind`; without a kind, for all that have no other handler.

        A job without any handler fails, to be tried again after a while, by another worker perhaps.
        """

        def register(function: AnyHandler) -> AnyHandler:
            if kind in self._handlers:
                raise ValueError(f"kind {kind!r} has a handler already")
            self._handlers[kind] = function
            return function

        return register

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT, in an event loop of its own."""

        async def serve() -> None:
            for signum in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(NotImplementedError):  # not on Windows
                    asyncio.get_running_loop().add_signal_handler(signum, self.stop)
            await self.serve()

        asyncio.run(serve())

    def stop(self) -> None:
        """Drains; `serve` returns when done. Called again: without further grace. Call it on the event loop."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def serve(self) -> None:
        """Serves until `stop`. Cancelled, it gives back at once what it holds.

        Raises a JobwireError only when the server refuses the very first claim for a reason that waiting does not mend.
        """
        self._loop = asyncio.get_running_loop()
        worker_id = self._worker_id or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        async with contextlib.AsyncExitStack() as stack:
            self._client = (
                await stack.enter_async_context(connect(self._server, tls=self._tls))
                if isinstance(self._server, str)
                else self._server
            )
            self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="jobwire-handler")
            stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            self._keeper = stack.enter_context(LeaseKeeper(self._client.endpoint, worker_id, self._tell))
            request = claim_stream_request(
                self._queues,
                worker_id=worker_id,
                max_in_flight=self._max_in_flight,
                lease_duration=self._lease_duration,
                receipt_timeout=self._receipt_timeout,
            )
            feed = Feed(
                self._client.endpoint,
                request,
                self._keeper,
                self._deliver,
                functools.partial(self._tell, news=News.CANCEL),
            )
            log.info("worker started: worker=%s queues=%s", worker_id, [ref.queue for ref in self._queues])
            await self._serve(feed)
            log.info("worker ended: worker=%s", worker_id)

    async def _serve(self, feed: Feed) -> None:
        feeding = asyncio.create_task(feed.run(), name="jobwire-feed")
        stopping = asyncio.create_task(self._stopping.wait())
        grace = 0.0
        try:
            await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            feed.stop()
            await feeding
            grace = self._drain_grace
        finally:
            stopping.cancel()
            feeding.cancel()
            await asyncio.gather(stopping, feeding, return_exceptions=True)
            await self._drain(grace)

    async def _drain(self, grace: float) -> None:
        """Gives back what has not begun, waits for the rest, then gives that back too."""
        # Not while the stream is open: it would bring the same jobs again, as long as they are given back.
        self._drained = True
        for run in list(self._runs.values()):
            if not run.begun:
                run.give_back()
        hurrying = asyncio.create_task(self._hurrying.wait())
        try:
            if self._tasks and grace > 0:
                log.info("draining: running=%d grace=%.1f s", sum(run.begun for run in self._runs.values()), grace)
                ended = asyncio.gather(*self._tasks, return_exceptions=True)
                either: set[asyncio.Future[Any]] = {ended, hurrying}
                await asyncio.wait(either, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            for run in list(self._runs.values()):
                run.give_back()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_RELEASE_SECONDS)
            for run in self._runs.values():
                log.warning("does not end, and comes back when its lease runs out: %s", run)

    # -- one job -----------------------------------------------------------------------------------------------------

    def _deliver(self, claimed: store_pb2.ClaimedJob, sent: float, doubtful: bool) -> None:
        """Takes a job into care, on the feed's thread."""
        lease = HeldLease(claimed, sent=sent, receipt_timeout=self._receipt_timeout, doubtful=doubtful)
        self._keeper.hold(lease)
        self._loop.call_soon_threadsafe(self._start, claimed.job, lease)

    def _start(self, job: job_pb2.Job, lease: HeldLease) -> None:
        if lease.ref.token in self._runs:
            return  # delivered twice, as a server may that is not sure of the first time
        context = JobContext(job, lease.ref, self._client, functools.partial(self._keeper.report, lease))
        run = self._runs[lease.ref.token] = Run(job, lease, context)
        if lease.lost:  # nobody was there yet to be told
            run.lost()
        task = run.start(self._client, self._handle)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._ended, run))
        if self._drained:
            run.give_back()

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._keeper.drop(run.lease)
        self._runs.pop(run.lease.ref.token, None)
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("not settled: %s", run, exc_info=error)

    def _tell(self, token: str, news: News) -> None:
        self._loop.call_soon_threadsafe(self._hear, token, news)

    def _hear(self, token: str, news: News) -> None:
        run = self._runs.get(token)
        if run is None:
            return
        match news:
            case News.SURE:
                run.sure.set()
            case News.LOST:
                run.lost()
            case News.CANCEL:
                run.ask_to_stop()

    async def _handle(self, run: Run) -> Result:
        async with self._slots:
            if time.monotonic() >= run.lease.deadline:
                raise Release  # this process stood still, and the keeper is about to find out
            if self._stopping.is_set():
                await asyncio.Event().wait()  # nothing begins any more; it is given back when the stream has ended
            run.begun = True
            with run.span.begin():
                return await self._call(run)

    async def _call(self, run: Run) -> Result:
        handler = self._handlers.get(run.job.kind) or self._handlers.get(None)
        if handler is None:
            raise Retry(
                min(_NO_HANDLER_CAP_SECONDS, _NO_HANDLER_FIRST_SECONDS * 2 ** min(run.job.failures, 16)),
                f"this worker has no handler for kind {run.job.kind!r}",
                code="NO_HANDLER",
            )
        log.debug("started: %s", run)
        if _is_async(handler):
            return await cast(Callable[[JobContext], Awaitable[Result]], handler)(run.context)
        run.in_thread = True
        return await self._call_in_thread(cast(Callable[[JobContext], Result], handler), run.context)

    async def _call_in_thread(self, handler: Callable[[JobContext], Result], context: JobContext) -> Result:
        call = functools.partial(contextvars.copy_context().run, handler, context)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
