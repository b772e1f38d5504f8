"""The state of one partition, and what several stores share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from jobwire_server.store.types import Notice

from .order import Order
from .ready import Ready
from .record import DedupKey, Name, Record


class Claim(NamedTuple):
    """A claim that was answered, remembered for a repeat of it."""

    time: int
    names: list[Name]


class Partition:
    """Records and the indexes over them. Only `Step` changes them, all together (rule 9)."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.records: dict[Name, Record] = {}
        self.last_seq = 0
        self.ready = Ready()
        # Every job stands in exactly one of these, by its deadline.
        self.due: Order[Name] = Order()
        self.leases: Order[Name] = Order()
        self.gone: Order[Name] = Order()
        # By create time, per namespace and per parent.
        self.ids: defaultdict[str, Order[str]] = defaultdict(Order)
        self.children: defaultdict[Name, Order[str]] = defaultdict(Order)
        self.dedup: dict[DedupKey, str] = {}
        # Replicas that wait for a (namespace, queue), by when they stop counting as waiting.
        self.waiters: defaultdict[tuple[str, str], Order[str]] = defaultdict(Order)
        self.claims: dict[str, Claim] = {}

    def timer_of(self, record: Record) -> Order[Name]:
        """Where a record in its present state stands."""
        if record.expires:
            return self.gone
        return self.leases if record.running else self.due


class State:
    """One deployment's state, shared by `MemoryStore` objects as an engine is by its clients."""

    def __init__(self, clock: Callable[[], int], partitions: int) -> None:
        self.clock = clock
        self.partitions = [Partition(number) for number in range(partitions)]
        self._mailboxes: dict[str, asyncio.Queue[Notice]] = {}

    def listen(self, replica: str) -> asyncio.Queue[Notice]:
        """Where the replica's notices arrive from now on."""
        return self._mailboxes.setdefault(replica, asyncio.Queue())

    def unlisten(self, replica: str) -> None:
        """Notices for the replica are dropped from now on."""
        self._mailboxes.pop(replica, None)

    def notify(self, replica: str, notice: Notice) -> None:
        """Delivers if the replica listens."""
        if replica in self._mailboxes:
            self._mailboxes[replica].put_nowait(notice)
