"""What time does to a partition, done when it is due; and the look that makes up for lost notices."""

from __future__ import annotations

import asyncio

import structlog

from jobwire_server.store import limits
from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

from . import pace
from .hub import Hub

_SWEEP_SECONDS = limits.SWEEP_INTERVAL_MS / 1_000

_log = structlog.get_logger("jobwire.dispatch")


class Timer:
    """One partition's. Every replica runs one: sweeps are idempotent.

    A sweep comes at the next deadline that the engine told of, and at least every half second: no lease, and no delay
    given through another replica, is then ever known too late by more than that.
    """

    def __init__(self, partition: int, store: Store, hub: Hub) -> None:
        self._partition = partition
        self._store = store
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._sweep_at = self._next(_SWEEP_SECONDS)
        self._look_at = self._next(pace.LOOK_SECONDS)
        self._armed = asyncio.Event()

    def arm(self, seconds: float) -> None:
        """Something becomes due in so many seconds."""
        due_at = self._loop.time() + seconds
        if due_at < self._sweep_at:
            self._sweep_at = due_at
            self._armed.set()

    async def run_for_ever(self) -> None:
        """Sweeps and looks. An engine that is away is asked again and again: its health is told elsewhere."""
        while True:
            self._armed.clear()
            try:
                if self._loop.time() >= self._sweep_at:
                    await self._sweep()
                if self._loop.time() >= self._look_at:
                    self._look_at = self._next(pace.LOOK_SECONDS)
                    await self._hub.look(self._partition)
            except StoreError as error:
                _log.debug("sweep refused", partition=self._partition, reason=error.reason_name)
            except Exception:
                _log.exception("bug", partition=self._partition)
            try:
                async with asyncio.timeout_at(min(self._sweep_at, self._look_at)):
                    await self._armed.wait()
            except TimeoutError:
                pass

    async def _sweep(self) -> None:
        # Set before the call: `arm` may lower it while the call is on its way.
        self._sweep_at = self._next(_SWEEP_SECONDS)
        swept = await self._store.sweep(self._partition)
        if swept.reclaimed:
            _log.info("leases ran out", partition=self._partition, jobs=len(swept.reclaimed))
        if swept.more:
            self.arm(0)
        elif swept.next_ms:
            # Not before the engine's next millisecond, or a deadline of this one would make a busy loop.
            self.arm(max(swept.next_ms - swept.now_ms, 1) / 1_000)

    def _next(self, interval: float) -> float:
        # The same for all partitions, so that their calls go out in one round trip.
        return (self._loop.time() // interval + 1) * interval
