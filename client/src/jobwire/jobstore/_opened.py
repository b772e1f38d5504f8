"""Backends of this process: one per URL and event loop, opened when first used, closed when nobody uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary, WeakSet

from ._verbs import Verbs


class Opened:
    """One URL's backend. All stores of the process with this URL share it."""

    def __init__(self, system: str, opener: Callable[[], Awaitable[Verbs]]) -> None:
        self.system = system
        """What is behind it, as telemetry names it."""
        self._opener = opener
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Verbs]] = WeakKeyDictionary()
        self._users: WeakSet[object] = WeakSet()

    async def verbs(self, user: object) -> Verbs:
        """The open backend. Opening that failed is tried again by the next who asks."""
        loop = asyncio.get_running_loop()
        self._users.add(user)
        task = self._by_loop.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._by_loop[loop] = loop.create_task(self._open())
        return await asyncio.shield(task)

    async def close(self, user: object) -> None:
        """This user needs it no more. The last one closes it."""
        self._users.discard(user)
        task = None if self._users else self._by_loop.pop(asyncio.get_running_loop(), None)
        if task is not None:
            [verbs] = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(verbs, BaseException):
                await verbs.close()

    async def _open(self) -> Verbs:
        return await self._opener()
