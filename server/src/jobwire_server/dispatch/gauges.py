"""What is there just now: streams and leases of this replica, and what the queues hold.

Gauges are read by a collector's own thread, which finds numbers here and waits for nothing. Queues are read from the
engine in the background, seldom, and only while somebody collects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakSet

import structlog
from jobwire.v1 import admin_pb2
from opentelemetry.metrics import CallbackOptions, Observation

from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError
from jobwire_server.store.times import timestamp_ms

from . import pace
from .credit import Ledger
from .metrics import Measuring, meter

QUEUES_MAX = 1_000
"""More queues than these, in the order of their names, have no gauges."""

# At most one part in so many of the time is spent on reading queues.
_SHARE = 20

_log = structlog.get_logger("jobwire.dispatch")


class Gauges:
    """Of one dispatch layer."""

    def __init__(self, store: Store, ledger: Ledger, measuring: Measuring) -> None:
        self.streams = 0
        """Claim streams that are open here."""
        self.queues: list[admin_pb2.Queue] = []
        """As last read."""
        self.wanted = False
        """Somebody has collected since then."""
        self.ledger = ledger
        self.measuring = measuring
        self._store = store

    async def follow_for_ever(self) -> None:
        """Has gauges, and reads the queues now and then, until cancelled."""
        _all.add(self)
        try:
            await self._follow()
        finally:
            _all.discard(self)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if self.wanted:
                self.wanted = False
                try:
                    answer = await self._store.list_queues(admin_pb2.ListQueuesRequest(page_size=QUEUES_MAX))
                    self.queues = list(answer.queues)
                except StoreError as error:
                    _log.debug("queues not read", reason=error.reason_name)
                except Exception:
                    _log.exception("bug")
            await asyncio.sleep(max(pace.GAUGES_SECONDS, _SHARE * (loop.time() - began)))


_all: WeakSet[Gauges] = WeakSet()


def _streams(options: CallbackOptions) -> Iterable[Observation]:
    yield Observation(sum(gauges.streams for gauges in list(_all)))


def _leases(options: CallbackOptions) -> Iterable[Observation]:
    yield Observation(sum(gauges.ledger.leases for gauges in list(_all)))


def _jobs(options: CallbackOptions) -> Iterable[Observation]:
    for gauges in list(_all):
        gauges.wanted = True
        for queue in gauges.queues:
            stats = queue.stats
            for state, jobs in (("ready", stats.ready), ("scheduled", stats.scheduled), ("running", stats.running)):
                yield Observation(jobs, {"namespace": queue.ref.namespace, "queue": queue.ref.queue, "state": state})


def _oldest(options: CallbackOptions) -> Iterable[Observation]:
    for gauges in list(_all):
        for queue in gauges.queues:
            age = 0.0
            if queue.stats.HasField("oldest_ready_time"):
                age = max(0.0, (gauges.measuring.engine_ms - timestamp_ms(queue.stats.oldest_ready_time)) / 1_000)
            yield Observation(age, {"namespace": queue.ref.namespace, "queue": queue.ref.queue})


meter.create_observable_gauge(
    "jobwire.streams", [_streams], unit="{stream}", description="Claim streams open at this replica"
)
meter.create_observable_gauge(
    "jobwire.leases.in_flight", [_leases], unit="{lease}", description="Leases that this replica's streams hold"
)
meter.create_observable_gauge(
    "jobwire.queue.jobs",
    [_jobs],
    unit="{job}",
    description="Jobs of a queue in the engine by `state`, the same at every replica: take the maximum, not the sum",
)
meter.create_observable_gauge(
    "jobwire.queue.oldest_age",
    [_oldest],
    unit="s",
    description="How long the job that has been ready for longest has waited; the same at every replica",
)
