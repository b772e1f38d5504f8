"""Jobs submitted through bare stubs, one server each, so that it is known what was in flight where at any moment."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Self

import grpc
from jobwire.v1 import job_pb2, store_pb2, store_pb2_grpc

from tests.errors import store_error
from tests.history.recorder import Call, Outcome, Recorder
from tests.requests import create
from tests.wait import wait_until

_DAY = 86_400.0
_LANES = 3
_CALL_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
# A server that is restarted should be found again at once.
_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200))
# What the contract lets a caller hear of a fault.
_EXPECTED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


@dataclass(eq=False)
class Attempt:
    """One Create on its way to one server."""

    job: str
    server: int
    outcome: Outcome | None = None
    """None while there is no answer."""


class Load:
    """Submits `rate` jobs a second, each until it is acknowledged; a try that failed is repeated through the next
    server. One in ten is of kind "flaky", one in ten waits a little before it may run.
    """

    def __init__(
        self, stubs: Sequence[store_pb2_grpc.StoreAsyncStub], recorder: Recorder, rate: float, rng: random.Random
    ) -> None:
        self.acknowledged: set[str] = set()
        self.pending: set[Attempt] = set()
        """Creates without an answer, just now."""
        self._stubs = stubs
        self._recorder = recorder
        self._pause = len(stubs) * _LANES / rate
        self._rng = rng
        self._number = 0
        self._stopped = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def on(
        cls, addresses: Sequence[str], recorder: Recorder, rate: float, rng: random.Random
    ) -> AsyncIterator[Self]:
        """Goes on for the extent of the context; at its end everything begun is acknowledged."""
        async with AsyncExitStack() as stack:
            stubs: list[store_pb2_grpc.StoreAsyncStub] = []
            for address in addresses:
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, _OPTIONS))
                stubs.append(store_pb2_grpc.StoreStub(channel))
            load = cls(stubs, recorder, rate, rng)
            async with asyncio.TaskGroup() as tasks:
                for lane in range(len(addresses) * _LANES):
                    tasks.create_task(load._submit_on(lane % len(addresses)))
                try:
                    yield load
                finally:
                    load._stopped.set()

    async def submit(
        self, job: str, kind: str, first: int = 0, *, delay: float | None = None, attempts: int = 50
    ) -> None:
        """One job, until it is acknowledged."""
        request = create(job, "q", ttl=_DAY, kind=kind, max_attempts=attempts, request_id=job, delay=delay)
        server = first
        while not await self._try(request, server):
            await asyncio.sleep(_PAUSE_SECONDS)
            server = (server + 1) % len(self._stubs)

    async def progress(self) -> None:
        """Returns when a job that is submitted from now on was acknowledged."""
        known = len(self.acknowledged) + len(self.pending)
        await wait_until(lambda: len(self.acknowledged) > known, 30)

    async def _submit_on(self, server: int) -> None:
        while not self._stopped.is_set():
            self._number += 1
            dice = self._rng.random()
            await self.submit(
                f"job-{self._number}",
                "flaky" if dice < 0.1 else "steady",
                server,
                delay=0.3 if 0.1 <= dice < 0.2 else None,
            )
            await asyncio.sleep(self._rng.uniform(0, 2 * self._pause))

    async def _try(self, request: store_pb2.CreateRequest, server: int) -> bool:
        attempt, began = Attempt(request.job_id, server), time.monotonic()
        self.pending.add(attempt)
        try:
            await self._stubs[server].Create(request, timeout=_CALL_SECONDS)
            attempt.outcome = Outcome.OK
        except grpc.aio.AioRpcError as error:
            if error.code() not in _EXPECTED:
                raise
            attempt.outcome = Outcome.REFUSED if _is_draining(error) else Outcome.UNKNOWN
        finally:
            self.pending.discard(attempt)
        self._recorder.write(Call.CREATE, request.job_id, began, outcome=attempt.outcome)
        if attempt.outcome is Outcome.OK:
            self.acknowledged.add(request.job_id)
        return attempt.outcome is Outcome.OK


def _is_draining(error: grpc.aio.AioRpcError) -> bool:
    """Whether it says for certain that nothing was done. Errors of gRPC's own have no details."""
    has_details = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
    return has_details and store_error(error).reason == job_pb2.ERROR_REASON_DRAINING
