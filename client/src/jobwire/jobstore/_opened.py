"""Backends of this process: one per URL and event loop, opened when first used, closed when nobody uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakSet

from ._verbs import Verbs


class _Use:
    """A backend in one event loop."""

    def __init__(self) -> None:
        self.users: WeakSet[object] = WeakSet()
        self.opening: asyncio.Task[Verbs] | None = None


class Opened:
    """One URL's backend. All stores of the process with this URL share it."""

    def __init__(self, system: str, opener: Callable[[], Awaitable[Verbs]]) -> None:
        self.system = system
        """What is behind it, as telemetry names it."""
        self._opener = opener
        self._by_loop: dict[asyncio.AbstractEventLoop, _Use] = {}

    async def verbs(self, user: object) -> Verbs:
        """The open backend. Opening that failed is tried again by the next who asks."""
        loop = asyncio.get_running_loop()
        use = self._by_loop.get(loop)
        if use is None:
            # Loops that ended without a `close` would be kept for ever: their tasks hold them.
            for ended in [other for other in list(self._by_loop) if other.is_closed()]:
                self._by_loop.pop(ended, None)
            use = self._by_loop[loop] = _Use()
        use.users.add(user)
        if use.opening is None or _failed(use.opening):
            use.opening = loop.create_task(self._open())
            use.opening.add_done_callback(_failed)  # nobody may be left to hear of it
        return await asyncio.shield(use.opening)

    async def close(self, user: object) -> None:
        """This user needs it no more in this event loop. The last one closes it."""
        loop = asyncio.get_running_loop()
        use = self._by_loop.get(loop)
        if use is None:
            return
        use.users.discard(user)
        if use.users:
            return
        del self._by_loop[loop]
        if use.opening is not None:
            [verbs] = await asyncio.gather(use.opening, return_exceptions=True)
            if not isinstance(verbs, BaseException):
                await verbs.close()

    async def _open(self) -> Verbs:
        return await self._opener()


def _failed(opening: asyncio.Task[Verbs]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
