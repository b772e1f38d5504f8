"""A worker's claim stream, reopened whenever it ends."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc

from jobwire.v1 import store_pb2, store_pb2_grpc

from ._endpoint import Endpoint
from ._errors import InvalidArgument, JobwireError, PermissionDenied, Unauthenticated, Unimplemented
from ._leases import LeaseKeeper
from ._retry import jittered
from ._stream import ClaimStream

log = logging.getLogger("jobwire.worker")

_KEEPALIVE_SECONDS = 2.0
_MISSED = 2
_GRACE_SECONDS = 0.5
_TICK_SECONDS = 0.1
_HELD_MAX = 1_000
_QUIET_SECONDS, _READ_OUT_SECONDS = 0.1, 1.0
_REOPEN_FIRST_SECONDS, _REOPEN_CAP_SECONDS = 0.5, 5.0
_HEALTHY_SECONDS = 5.0
_HOPELESS = (InvalidArgument, Unauthenticated, PermissionDenied, Unimplemented)


class Feed:
    """Reads a claim stream until stopped and hands on what it brings.

    `deliver(job, asked)` gets each job with a local monotonic time before which it cannot have been claimed;
    `cancel(token)` each request to stop one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: store_pb2.ClaimStreamRequest,
        keeper: LeaseKeeper,
        deliver: Callable[[store_pb2.ClaimedJob, float], None],
        cancel: Callable[[str], None],
    ) -> None:
        self._endpoint = endpoint
        self._request = store_pb2.ClaimStreamRequest()
        self._request.CopyFrom(request)
        self._request.session_id = uuid.uuid4().hex
        self._request.keepalive_interval.FromNanoseconds(int(_KEEPALIVE_SECONDS * 1e9))
        self._keeper = keeper
        self._deliver = deliver
        self._cancel = cancel
        self._ever_opened = False
        self._patience = 0.0
        """How many seconds of silence end a stream."""
        self._stopped: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Ends `run` soon, after what is on its way was read."""
        if not self._stopped.done():
            self._stopped.set_result(time.monotonic())

    async def run(self) -> None:
        """Until `stop`. Raises only when the very first opening is refused for a reason that stays."""
        # A connection of its own: when it swallows messages, a new one is made without harm to other calls.
        channel = self._endpoint.aio_channel(own_connection=True)
        failures = 0
        try:
            while not self._stopped.done():
                began = time.monotonic()
                pause = 0.0
                try:
                    await self._read(channel)
                    why = "the server ended it"
                except TimeoutError:
                    why = "silent"
                    await channel.close()
                    channel = self._endpoint.aio_channel(own_connection=True)
                except JobwireError as error:
                    if not self._ever_opened and isinstance(error, _HOPELESS):
                        raise
                    why = f"{error.code.name}: {error.message}"
                    pause = error.retry_after or 0.0
                if self._stopped.done():
                    return
                failures = 0 if time.monotonic() - began >= _HEALTHY_SECONDS else failures
                pause += jittered(_REOPEN_CAP_SECONDS, _REOPEN_FIRST_SECONDS, failures)
                failures += 1
                log.warning("claim stream ended (%s), reopening in %.2f s", why, pause)
                await asyncio.wait({self._stopped}, timeout=pause)
        finally:
            await channel.close()

    async def _read(self, channel: grpc.aio.Channel) -> None:
        """One stream, to its end. Raises TimeoutError when it falls silent."""
        self._request.epoch += 1
        del self._request.held[:]
        self._request.held.extend(self._keeper.held()[:_HELD_MAX])
        async with ClaimStream(store_pb2_grpc.StoreStub(channel), self._request) as stream:
            self._patience = _KEEPALIVE_SECONDS * _MISSED + _GRACE_SECONDS
            reading = asyncio.create_task(stream.read(), name="jobwire-feed-read")
            try:
                # While the loop turns, a message is seen at most a tick after it came. So what is seen now came after
                # the last time that nothing was there, however long a handler blocked the loop in between.
                asked, silent = time.monotonic(), 0.0
                while await self._wait_for(reading, silent):
                    if not reading.done():
                        asked = time.monotonic()
                        silent += _TICK_SECONDS
                        continue
                    message = reading.result()
                    if message is None:
                        return
                    self._take(message, asked)
                    asked, silent = time.monotonic(), 0.0
                    reading = asyncio.create_task(stream.read(), name="jobwire-feed-read")
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _wait_for(self, reading: asyncio.Task[store_pb2.ClaimStreamResponse | None], silent: float) -> bool:
        """Waits a tick for a message. False: stopped, and nothing more is on its way."""
        if silent >= self._patience:
            raise TimeoutError
        if not self._stopped.done():
            either: set[asyncio.Future[Any]] = {reading, self._stopped}
            await asyncio.wait(either, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return True
        if time.monotonic() >= self._stopped.result() + _READ_OUT_SECONDS:
            return False
        await asyncio.wait({reading}, timeout=_QUIET_SECONDS)
        return reading.done()

    def _take(self, message: store_pb2.ClaimStreamResponse, asked: float) -> None:
        match message.WhichOneof("event"):
            case "opened":
                self._ever_opened = True
                opened = message.opened
                self._patience = opened.keepalive_interval.ToNanoseconds() / 1e9 * _MISSED + _GRACE_SECONDS
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
                    self._deliver(claimed, asked)
            case "cancel":
                self._cancel(message.cancel.lease.token)
            case "drain":
                log.info("claim stream: the server is shutting down")
