"""One claimer at this replica, a stream or a waiting call: takes jobs while there are any, else sleeps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobwire.v1 import store_pb2

if TYPE_CHECKING:
    from .hub import Hub
    from .queue_view import QueueView


class Listener:
    """Made by `Hub.listening`. `take` is for one task at a time; `wake` is for anybody."""

    def __init__(self, hub: Hub, request: store_pb2.ClaimRequest, views: Sequence[QueueView], receipt_ms: int) -> None:
        self.request = request
        self.views = views
        self.receipt_ms = receipt_ms
        self.handed: list[store_pb2.ClaimedJob] = []
        """Claimed for it by others, to be taken next."""
        self._wanted = 0  # while asleep: how many jobs it has room for
        self._promised = 0  # of its room: what others are claiming for just now
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        # Not all start at the same partition, and each goes on after its last: none starves.
        self._cursor = random.randrange(hub.partitions)  # noqa: S311 - spreads load, guards nothing

    @property
    def is_draining(self) -> bool:
        """The server is shutting down: nothing will be taken any more."""
        return self._hub.is_draining

    async def take(self, wanted: int, until: float) -> list[store_pb2.ClaimedJob]:
        """At most `wanted` jobs of one partition, at once if any is ready. Answers none when the server drains.

        Else sleeps until woken or until the loop time `until`, and answers none: look around, then ask again.

        Raises:
            StoreError: the engine refused the claim.
        """
        self._woken.clear()
        if self.handed:
            return self._take_handed()
        # It may have been woken while others are claiming for it.
        wanted -= self._promised
        while wanted > 0 and not self.is_draining and (partition := self._next_partition()) is not None:
            if jobs := await self._hub.claim_from(self, partition, wanted):
                return jobs
        if not self.is_draining:
            self._wanted = wanted
            await self._sleep(until, idle=wanted > 0)
        return self._take_handed()

    def engage(self) -> int:
        """Ends its idleness, not its sleep: somebody claims for it, who must then `give`. How many jobs at most."""
        self._leave_idle()
        self._promised += self._wanted
        return self._wanted

    def give(self, jobs: Sequence[store_pb2.ClaimedJob], promised: int) -> None:
        """Ends its sleep with these jobs, or with none. `promised`: what `engage` answered."""
        self._promised -= promised
        self.handed += jobs
        self.wake()

    def wake(self) -> None:
        """Ends the sleep, or keeps the next one from beginning."""
        self._leave_idle()
        self._woken.set()

    def _take_handed(self) -> list[store_pb2.ClaimedJob]:
        jobs, self.handed = self.handed, []
        return jobs

    def _next_partition(self) -> int | None:
        now = self._loop.time()
        for step in range(self._hub.partitions):
            partition = (self._cursor + step) % self._hub.partitions
            if any(view.may_have(partition, now) for view in self.views):
                self._cursor = partition + 1
                return partition
        return None

    async def _sleep(self, until: float, *, idle: bool) -> None:
        if idle and not self._woken.is_set():
            for view in self.views:
                view.idle[self] = None
        try:
            async with asyncio.timeout_at(until):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self._leave_idle()

    def _leave_idle(self) -> None:
        for view in self.views:
            view.idle.pop(self, None)
