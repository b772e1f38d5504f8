"""A worker's claim stream, reopened whenever it ends.

A thread reads it, so that a job's lease is in the keeper's care from the moment it arrives, and its receipt on the way,
whatever the event loop is busy with.

All streams of a feed are one session, drawn at random; each has a higher epoch than those before and says which leases
are still held. An earlier stream is given up, its thread at an end, before the next is opened. So jobs that the server
still sends on it are never seen here, and go elsewhere for want of a receipt; nor is its end (STREAM_SUPERSEDED) seen,
so nothing is opened twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc

from jobwire.v1 import store_pb2, store_pb2_grpc

from ._endpoint import Endpoint
from ._errors import InvalidArgument, JobwireError, PermissionDenied, Unauthenticated, Unimplemented
from ._leases import LeaseKeeper
from ._limits import BATCH
from ._retry import jittered
from ._stream import SyncClaimStream

log = logging.getLogger("jobwire.worker")

_KEEPALIVE_SECONDS = 2.0
_MISSED = 2
_SLACK_SECONDS = 0.5
_DOUBT_SECONDS = 1.0
_WATCH_SECONDS = 0.25
_READ_OUT_SECONDS = 0.1
_REOPEN_FIRST_SECONDS, _REOPEN_CAP_SECONDS = 0.5, 5.0
_HEALTHY_SECONDS = 5.0
_HOPELESS = (InvalidArgument, Unauthenticated, PermissionDenied, Unimplemented)


class Feed:
    """Reads a claim stream until stopped and hands on what it brings, on the reading thread.

    `deliver(job, sent, doubtful)` gets each job, since when it may have been on its way, and whether that may be long;
    `cancel(token)` each request to stop one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: store_pb2.ClaimStreamRequest,
        keeper: LeaseKeeper,
        deliver: Callable[[store_pb2.ClaimedJob, float, bool], None],
        cancel: Callable[[str], object],
    ) -> None:
        self._endpoint = endpoint
        self._request = store_pb2.ClaimStreamRequest()
        self._request.CopyFrom(request)
        self._request.session_id = uuid.uuid4().hex
        self._request.keepalive_interval.FromNanoseconds(int(_KEEPALIVE_SECONDS * 1e9))
        # A job lives this long at least before the server gives it to another worker; 0: as long as its lease, unknown.
        self._receipt_timeout = request.receipt_timeout.ToNanoseconds() / 1e9 or math.inf
        self._keeper = keeper
        self._deliver = deliver
        self._cancel = cancel
        self._ever_opened = False
        self._keepalive = _KEEPALIVE_SECONDS
        self._heard = 0.0
        self._sent = 0.0
        self._silence = 0.0
        self._silence_until = 0.0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Ends `run` soon, after what is on its way was read."""
        self._stopped.set()

    async def run(self) -> None:
        """Until `stop`. Raises only when the very first opening is refused for a reason that stays."""
        # A connection of its own: when it swallows messages, a new one is made without harm to other calls.
        channel = self._endpoint.channel()
        stopping = asyncio.create_task(self._stopped.wait())
        failures = 0
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                pause = 0.0
                try:
                    await self._read(channel, stopping)
                    why = "the server ended it"
                except TimeoutError:
                    why = "silent"
                    channel.close()
                    channel = self._endpoint.channel()
                except JobwireError as error:
                    if not self._ever_opened and isinstance(error, _HOPELESS):
                        raise
                    why = f"{error.code.name}: {error.message}"
                    pause = error.retry_after or 0.0
                if self._stopped.is_set():
                    return
                failures = 0 if time.monotonic() - began >= _HEALTHY_SECONDS else failures
                pause += jittered(_REOPEN_CAP_SECONDS, _REOPEN_FIRST_SECONDS, failures)
                failures += 1
                log.warning("claim stream ended (%s), reopening in %.2f s", why, pause)
                await asyncio.wait({stopping}, timeout=pause)
        finally:
            stopping.cancel()
            channel.close()

    async def _read(self, channel: grpc.Channel, stopping: asyncio.Task[Any]) -> None:
        """One stream, to its end. Raises TimeoutError when it falls silent."""
        self._request.epoch += 1
        del self._request.held[:]
        self._request.held.extend(self._keeper.held()[:BATCH])
        self._heard = time.monotonic()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with SyncClaimStream(store_pb2_grpc.StoreStub(channel), self._request) as stream:
            thread = threading.Thread(target=self._pump, args=(stream, ended), name="jobwire-feed", daemon=True)
            thread.start()
            either: set[asyncio.Future[Any]] = {ended, stopping}
            try:
                while not (ended.done() or stopping.done()):
                    await asyncio.wait(either, timeout=_WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if time.monotonic() - self._heard > self._keepalive * _MISSED + _SLACK_SECONDS:
                        raise TimeoutError
                await asyncio.wait({ended}, timeout=_READ_OUT_SECONDS)
                if ended.done():
                    ended.result()
            finally:
                stream.cancel()
                thread.join()  # soon: its call is cancelled

    def _pump(self, stream: SyncClaimStream, ended: asyncio.Future[None]) -> None:
        """Reads on its own thread."""
        failure: JobwireError | None = None
        try:
            for message in stream:
                self._take(message, self._is_doubtful())
        except JobwireError as error:
            failure = error

        def end() -> None:
            if not ended.done():
                ended.set_exception(failure) if failure else ended.set_result(None)

        ended.get_loop().call_soon_threadsafe(end)

    def _is_doubtful(self) -> bool:
        """Whether the message that was read just now may have been long on its way.

        Usually it is read as it arrives. But when nothing was heard for longer than keepalives allow, something stood
        still, perhaps this process, and so what is read now, and for a moment after, may be old. Where receipts are due
        sooner than keepalives (a short lease), it may be too old after any pause that is nearly as long.
        """
        now = time.monotonic()
        silence, self._heard = now - self._heard, now
        # What was sent during a silence may be read one message at a time.
        if silence >= self._silence or now >= self._silence_until:
            self._silence, self._silence_until = silence, now + _DOUBT_SECONDS
        doubtful = self._silence > min(self._keepalive + _SLACK_SECONDS, self._receipt_timeout / 2)
        self._sent = now if doubtful else now - self._silence  # in doubt, the answer to the receipt tells
        return doubtful

    def _take(self, message: store_pb2.ClaimStreamResponse, doubtful: bool) -> None:
        match message.WhichOneof("event"):
            case "opened":
                self._ever_opened = True
                opened = message.opened
                self._keepalive = opened.keepalive_interval.ToNanoseconds() / 1e9
                log.info(
                    "claim stream opened: stream=%s epoch=%d server=%s",
                    opened.stream_id,
                    self._request.epoch,
                    opened.server_version,
                )
                if len(opened.held_tokens) < len(self._request.held):
                    self._keeper.ask()
            case "jobs":
                for claimed in message.jobs.jobs:
                    self._deliver(claimed, self._sent, doubtful)
            case "cancel":
                self._cancel(message.cancel.lease.token)
            case "drain":
                log.info("claim stream: the server is shutting down")
