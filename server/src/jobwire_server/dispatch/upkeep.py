"""Audits, and the repairs that they ask for."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import structlog

from jobwire_server.store.base import Store
from jobwire_server.store.errors import StoreError

from . import metrics, pace

_log = structlog.get_logger("jobwire.dispatch")


class Upkeep:
    """Looks now and then whether counters and indexes agree. Every replica does; of several repairs one walks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursors = [""] * store.partitions
        """Where each partition's next audit goes on."""

    async def run_for_ever(self) -> None:
        """Audits each partition once per `pace.AUDIT_SECONDS` on average; replicas do not keep step."""
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * pace.AUDIT_SECONDS)  # noqa: S311
            for partition in range(self._store.partitions):
                try:
                    audit = await self._store.audit(partition, self._cursors[partition])
                    self._cursors[partition] = audit.cursor
                    if audit.stale or not audit.agree:
                        await self._repair(partition)
                except StoreError as error:
                    _log.debug("audit refused", partition=partition, reason=error.reason_name)
                except Exception:
                    _log.exception("bug", partition=partition)

    async def _repair(self, partition: int) -> None:
        mended: Counter[str] = Counter()
        cursor, walking = "", True
        loop = asyncio.get_running_loop()
        try:
            while walking:
                began = loop.time()
                cursor, some = await self._store.repair(partition, cursor)
                mended.update(some)
                for sort, number in some.items():
                    metrics.repairs.add(number, {"sort": sort})
                walking = cursor != ""
                # At least half of the engine's time is for others.
                await asyncio.sleep(loop.time() - began if walking else 0)
        finally:
            # Also what a walk mended that was broken off.
            if mended:
                _log.warning("counters and indexes differed: mended", partition=partition, **mended)
