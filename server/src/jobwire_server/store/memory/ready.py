"""Who is next: the lines in which READY jobs wait, and the rings that share a queue fairly between tenants.

A line holds the jobs of one (namespace, queue, priority, tenant) by sequence number: first in, first out. A ring holds,
per (namespace, queue, priority), the tenants with a non-empty line, each with a tag, its virtual time. This is
start-time fair queueing with a cost of one per job: the tenant with the lowest tag is next and moves one on.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from .order import Order


class Line(NamedTuple):
    """Names a line."""

    namespace: str
    queue: str
    priority: int
    tenant: str


class Ring:
    """The tenants of one (namespace, queue, priority)."""

    def __init__(self) -> None:
        self.lines: dict[str, Order[str]] = {}
        """Job ids by sequence number, per tenant; none is empty."""
        self.tags: dict[str, float] = {}
        """The virtual time of each tenant in `lines`."""
        self.debts: dict[str, float] = {}
        """Where tenants stood that left by a claim: one who submits a job at a time cannot overtake a backlog."""

    def enter(self, tenant: str, job_id: str, seq: int, *, returning: bool) -> None:
        """Puts a job into its tenant's line.

        A newcomer starts at the lowest tag of the others (an idle tenant gains no credit), or where it stood if that is
        higher. What returns was charged when it was claimed, and is refunded.
        """
        if tenant not in self.tags:
            debt = self.debts.pop(tenant, -inf) - (1 if returning else 0)
            self.tags[tenant] = max(min(self.tags.values(), default=0.0), debt)
        elif returning:
            self.tags[tenant] -= 1
        self.lines.setdefault(tenant, Order()).put(job_id, seq)

    def next(self) -> tuple[str, str]:
        """The tenant whose turn it is (ties: by name), and the head of its line."""
        tenant = min(self.tags, key=lambda name: (self.tags[name], name))
        return tenant, self.lines[tenant].first()[1]

    def leave(self, tenant: str, job_id: str, *, charged: bool) -> None:
        """Takes a job out of its line; `charged` if it was claimed, not deleted, cancelled or moved."""
        line = self.lines[tenant]
        line.drop(job_id)
        tag = self.tags[tenant] + (1 if charged else 0)
        if line:
            self.tags[tenant] = tag
        else:
            del self.lines[tenant], self.tags[tenant]
            if charged:
                self.debts[tenant] = tag
        if charged or not self.tags:
            self._forget_debts()

    def _forget_debts(self) -> None:
        # A debt that the others have caught up with is equal to none.
        floor = min(self.tags.values(), default=inf)
        self.debts = {tenant: tag for tenant, tag in self.debts.items() if tag > floor}


class Ready:
    """All lines of a partition."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], dict[int, Ring]] = {}

    def enter(self, line: Line, job_id: str, seq: int, *, returning: bool) -> None:
        """Puts a job into its line, in the place that its sequence number gives it."""
        rings = self._queues.setdefault((line.namespace, line.queue), {})
        ring = rings.setdefault(line.priority, Ring())
        ring.enter(line.tenant, job_id, seq, returning=returning)

    def leave(self, line: Line, job_id: str, *, charged: bool) -> None:
        """Takes a job out of its line, if it stands there."""
        rings = self._queues.get((line.namespace, line.queue), {})
        ring = rings.get(line.priority)
        if ring is None or job_id not in ring.lines.get(line.tenant, ()):
            return
        ring.leave(line.tenant, job_id, charged=charged)
        if not ring.tags:
            del rings[line.priority]
        if not rings:
            del self._queues[line.namespace, line.queue]

    def next(self, namespace: str, queue: str) -> tuple[Line, str] | None:
        """The job of a queue whose turn it is: highest priority, then fairly between tenants, then first in."""
        rings = self._queues.get((namespace, queue))
        if not rings:
            return None
        priority = max(rings)
        tenant, job_id = rings[priority].next()
        return Line(namespace, queue, priority, tenant), job_id

    def entries(self) -> list[tuple[Line, str, int]]:
        """Every line's every job, with its sequence number."""
        return [
            (Line(*queue, priority, tenant), job_id, seq)
            for queue, rings in self._queues.items()
            for priority, ring in rings.items()
            for tenant, order in ring.lines.items()
            for seq, job_id in order
        ]

    def heads(self, namespace: str, queue: str) -> list[str]:
        """The first job of every line of a queue."""
        rings = self._queues.get((namespace, queue), {})
        return [line.first()[1] for ring in rings.values() for line in ring.lines.values()]
