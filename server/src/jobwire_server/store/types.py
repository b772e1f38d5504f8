"""What stores answer besides the contract's own messages."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from jobwire.v1 import store_pb2

from .errors import StoreError

Outcome = store_pb2.CreateResponse | StoreError
SettleResponse = store_pb2.CompleteResponse | store_pb2.FailResponse | store_pb2.ReleaseResponse


class Claimed(NamedTuple):
    """What a claim on one partition yielded."""

    jobs: list[store_pb2.ClaimedJob]
    more: bool
    """Whether more jobs are ready in the asked queues."""
    waited_ms: int = 0
    """How long the one that had been ready for longest had waited; of a repeat 0."""


class Wish(NamedTuple):
    """What a claim asks of a partition."""

    queues: Sequence[tuple[str, str]]
    """(namespace, queue), looked at in this order."""
    max_jobs: int
    max_bytes: int
    """No more than fit, but at least one."""
    lease_ms: int
    """For jobs that ask for no lease of their own."""
    receipt_ms: int
    """How long the first heartbeat may take, if that is shorter than the lease; 0: as long as the lease."""
    worker_id: str
    token: str
    """The i-th job (from 0) gets the lease token `<token>-<i>`. A repeat within 10 s answers the same jobs."""
    waiting: bool
    """Register this replica as waiting for the queues, unless more jobs are ready there."""


class Sweep(NamedTuple):
    """What one slice of a sweep did, and when the next is due."""

    now_ms: int
    """The engine's clock."""
    next_ms: int
    """The next known deadline of the partition (run time, queue timeout, lease); 0: none."""
    more: bool
    """A slice was full: sweep again at once."""
    late_ms: int
    """How late the latest of the promoted was."""
    promoted: int
    expired: int
    removed: int
    reclaimed: list[tuple[str, str]]
    """(namespace, id) of the jobs whose leases ran out."""


class Audit(NamedTuple):
    """What one look at counters and indexes found."""

    agree: bool
    """Whether they agree, as far as this look went."""
    stale: bool
    """No repair walk was here for a day: one is due even so."""
    cursor: str
    """Where the next look goes on; "" when all queues were looked at."""


class Repair(NamedTuple):
    """What one slice of a repair walk did."""

    cursor: str
    """Where the walk goes on; "" at its end, and where another one is under way."""
    mended: dict[str, int]
    """How many things of each sort: record, timer, line, ids, children, dedup, ttl, seq, count."""


class Held(Enum):
    """What became of a lease token."""

    HELD = 0
    SETTLED = 1
    LOST = 2


class NoticeKind(Enum):
    """What a notice is about."""

    READY = "ready"
    """A job became ready in the queue (namespace, name) of `partition`, and this replica was waiting for it."""
    SETTLED = "settled"
    """The lease token `name`, claimed through this replica, was settled through another."""
    CANCEL = "cancel"
    """Somebody asked to stop the job (namespace, name), whose lease was granted through this replica."""
    CHANGED = "changed"
    """The job (namespace, name), which this replica watches, has a new version or is gone."""
    RESUMED = "resumed"
    """Notices may have been lost: look at everything."""


class Notice(NamedTuple):
    """A hint from the engine to one replica. Never needed for correctness: any may be lost."""

    kind: NoticeKind
    partition: int = 0
    namespace: str = ""
    name: str = ""
