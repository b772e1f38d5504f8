"""Waiting for what becomes true, instead of sleeping for as long as it usually takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def wait_until(predicate: Callable[[], bool | Awaitable[bool]], seconds: float = 20.0) -> None:
    """Returns once `predicate()` (plain or async) is true; fails when it is not within `seconds`.

    Which is for a busy machine: how long something takes is no matter of this.
    """
    async with asyncio.timeout(seconds):
        while True:
            answer = predicate()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)
