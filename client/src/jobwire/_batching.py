"""Natural batching: while one call is in flight, what arrives is gathered and goes out together as the next.

No timer and no added delay: a lone item goes at once. At most one call of a batcher is in flight.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from ._errors import DeadlineExceeded, JobwireError
from ._limits import BATCH, BATCH_BYTES, ITEM_OVERHEAD_BYTES

Item = TypeVar("Item", bound=Message)
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Sends items through `send`, which answers or refuses each in order, or raises for all of them."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | JobwireError]]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def submit(self, item: Item, timeout: float) -> Answer:
        """Sends one item; the answer, or the item's error. A caller that gives up does no harm to the others."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_waiting(), name="jobwire-batch")
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise DeadlineExceeded(f"no answer within {timeout:.3g} s") from None

    async def _send_waiting(self) -> None:
        try:
            while batch := self._take():
                outcomes: Sequence[Answer | Exception]
                try:
                    outcomes = await self._send([item for item, _ in batch])
                except Exception as error:  # whatever it is belongs to the callers
                    outcomes = [error if len(batch) == 1 else copy.copy(error) for _ in batch]
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():
                        continue
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            self._sender = None

    def _take(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        size = 0
        while self._waiting and len(batch) < BATCH:
            item, future = self._waiting[0]
            if not future.done():  # done: its caller gave up
                size += item.ByteSize() + ITEM_OVERHEAD_BYTES
                if batch and size > BATCH_BYTES:
                    break
                batch.append((item, future))
            self._waiting.popleft()
        return batch


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Cuts items into lists that each fit one batch call."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        bytes_more = item.ByteSize() + ITEM_OVERHEAD_BYTES
        if chunk and (len(chunk) == BATCH or size + bytes_more > BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += bytes_more
    if chunk:
        yield chunk
