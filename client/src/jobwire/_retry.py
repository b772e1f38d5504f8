"""Repeating what is safe to repeat: UNAVAILABLE only, a few times, with growing jittered pauses."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from ._errors import Unavailable

TRIES = 5
_FIRST_PAUSE, _GROWTH = 0.1, 3.0

Answer = TypeVar("Answer")


def pauses() -> Iterator[float]:
    """The pauses between tries, in seconds: up to 0.1, 0.3, 0.9, 2.7. Never under half of that, so that together
    they outlast a server's restart.
    """
    for step in range(TRIES - 1):
        yield _FIRST_PAUSE * _GROWTH**step * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing


def jittered(cap: float, first: float, step: int) -> float:
    """Full jitter: uniform between zero and `first` x 2^`step`, at most `cap` (seconds)."""
    return random.uniform(0, min(cap, first * 2 ** min(step, 32)))  # noqa: S311


async def retrying(attempt: Callable[[float], Awaitable[Answer]], timeout: float) -> Answer:
    """Repeats `attempt(seconds left)` on UNAVAILABLE, as long as a further try would begin within `timeout`."""
    deadline = time.monotonic() + timeout
    for pause in pauses():
        try:
            return await attempt(deadline - time.monotonic())
        except Unavailable:
            if time.monotonic() + pause >= deadline:
                raise
        await asyncio.sleep(pause)
    return await attempt(deadline - time.monotonic())


def retrying_sync(attempt: Callable[[float], Answer], timeout: float) -> Answer:
    """As `retrying`, blocking."""
    deadline = time.monotonic() + timeout
    for pause in pauses():
        try:
            return attempt(deadline - time.monotonic())
        except Unavailable:
            if time.monotonic() + pause >= deadline:
                raise
        time.sleep(pause)
    return attempt(deadline - time.monotonic())
