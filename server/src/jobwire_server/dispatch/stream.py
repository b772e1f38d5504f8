"""One claim stream: what it tells its client, and when it may send jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog
from jobwire.v1 import job_pb2, store_pb2

from jobwire_server import __version__
from jobwire_server.store import limits
from jobwire_server.store.errors import StoreError
from jobwire_server.store.times import duration_ms, set_duration

from .credit import Account, Ledger, lease_of
from .listener import Listener
from .undelivered import Undelivered

Write = Callable[[store_pb2.ClaimStreamResponse], Awaitable[None]]

# What an engine answers while it is away or out of memory; it comes back from both.
_PASSING = {job_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, job_pb2.ERROR_REASON_ENGINE_FULL}

_log = structlog.get_logger("jobwire.dispatch")


class ClaimStream:
    """Runs in its caller's task, which alone writes. When that is cancelled, or a write fails, what was not delivered
    goes back at once.
    """

    def __init__(
        self,
        request: store_pb2.ClaimStreamRequest,
        write: Write,
        listener: Listener,
        ledger: Ledger,
        undelivered: Undelivered,
    ) -> None:
        self.stream_id = secrets.token_hex(8)
        self._request = request
        self._write = write
        self._listener = listener
        self._ledger = ledger
        self._undelivered = undelivered
        self._max_in_flight = request.max_in_flight or 1
        self._keepalive_ms = duration_ms(request.keepalive_interval) or limits.KEEPALIVE_DEFAULT_MS
        self._keepalive_at = 0.0
        self.account = Account(self._max_in_flight, listener.wake)

    async def run(self, held: Sequence[store_pb2.LeaseRef]) -> None:
        """Serves the stream until the server drains. `held`: the leases that its client still holds."""
        _log.info("stream opened", stream=self.stream_id, worker=self._request.worker_id, held=len(held))
        self._ledger.add(self.account, held)
        try:
            await self._send(self._opened(held))
            while not (self._listener.is_draining or self.account.is_silent):
                if self.account.is_superseded:
                    raise superseded()
                if self.account.cancels:
                    await self._send(store_pb2.ClaimStreamResponse(cancel=self.account.cancels.pop(0)))
                    continue  # whatever woke us meanwhile would be forgotten by the next sleep
                jobs = await self._take()
                if jobs:
                    await self._deliver(jobs)
                elif asyncio.get_running_loop().time() >= self._keepalive_at:
                    await self._send(store_pb2.ClaimStreamResponse(keepalive=store_pb2.StreamKeepalive()))
            await self._send(store_pb2.ClaimStreamResponse(drain=store_pb2.StreamDrain()))
        finally:
            self._ledger.close(self.account)
            _log.info("stream ended", stream=self.stream_id, in_flight=len(self.account.leases))

    async def _take(self) -> Sequence[store_pb2.ClaimedJob]:
        try:
            return await self._listener.take(self.account.credit, self._keepalive_at)
        except StoreError as error:
            # A stream outlives an engine that is away for a while: the hub lets nobody claim again before a look.
            if error.reason in _PASSING:
                return []
            raise

    async def _deliver(self, jobs: Sequence[store_pb2.ClaimedJob]) -> None:
        if self.account.is_superseded:  # this client reads no more
            self._undelivered.give_back(jobs)
            return
        # Counted before they are written: a settlement may be back before the write returns.
        self._ledger.add(self.account, map(lease_of, jobs))
        written = 0
        try:
            for batch in in_messages(jobs):
                await self._send(store_pb2.ClaimStreamResponse(jobs=store_pb2.StreamJobs(jobs=batch)))
                written += len(batch)
        finally:
            if written < len(jobs):
                self._undelivered.give_back(jobs[written:])

    async def _send(self, message: store_pb2.ClaimStreamResponse) -> None:
        await self._write(message)
        self._keepalive_at = asyncio.get_running_loop().time() + self._keepalive_ms / 1_000

    def _opened(self, held: Sequence[store_pb2.LeaseRef]) -> store_pb2.ClaimStreamResponse:
        message = store_pb2.ClaimStreamResponse()
        opened = message.opened
        opened.stream_id = self.stream_id
        opened.max_in_flight = self._max_in_flight
        set_duration(opened.lease_duration, duration_ms(self._request.lease_duration) or limits.LEASE_DEFAULT_MS)
        set_duration(opened.keepalive_interval, self._keepalive_ms)
        opened.held_tokens.extend(lease.token for lease in held)
        opened.server_version = __version__
        return message


def superseded() -> StoreError:
    """STREAM_SUPERSEDED."""
    return StoreError(
        job_pb2.ERROR_REASON_STREAM_SUPERSEDED, "a later epoch of this session has a stream on this server"
    )


def in_messages(jobs: Sequence[store_pb2.ClaimedJob]) -> Iterator[list[store_pb2.ClaimedJob]]:
    """Cuts jobs into batches that each fit one message; a single job always does."""
    batch: list[store_pb2.ClaimedJob] = []
    size = 0
    for job in jobs:
        job_size = job.ByteSize() + 8
        if batch and size + job_size > limits.ANSWER_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += job_size
    if batch:
        yield batch
