"""Work that goes on when those who began it are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TypeVar

import structlog

from jobwire_server.store.errors import StoreError

_T = TypeVar("_T")

_log = structlog.get_logger("jobwire.dispatch")


class Background:
    """Keeps its tasks: the loop itself holds only weak references to them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[None, None, object]) -> None:
        """Begins work that nobody waits for."""
        self._task(work).add_done_callback(_log_bug)

    async def outlast(self, work: Coroutine[None, None, _T], abandoned: Callable[[_T], None] | None = None) -> _T:
        """What the work yields. A cancelled caller does not cancel it; `abandoned` then gets what it yields."""
        task = self._task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_bug)
            if abandoned is not None:
                task.add_done_callback(lambda done: abandoned(done.result()) if _succeeded(done) else None)
            raise

    async def finish(self, seconds: float) -> None:
        """Waits for everything on its way, and for what that begins; cancels what takes longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancel()

    def _task(self, work: Coroutine[None, None, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _succeeded(done: asyncio.Task[_T]) -> bool:
    return not done.cancelled() and done.exception() is None


def _log_bug(done: asyncio.Task[_T]) -> None:
    # Asks for the exception in any case: nobody else will, and asyncio complains of that.
    if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, StoreError):
        _log.error("bug", exc_info=error)
