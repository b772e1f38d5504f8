"""The table of scripts: one per verb, with its parameters declared by name and type; and what their codes mean."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from jobwire_server.store import limits

from .loader import Declaration, composed, preamble, rehearsed, resolve
from .record import BASIC_FIELDS, FIELDS, INT, ROUTE, STATE, STR


class Code(IntEnum):
    """First element of a script's answer per item; `codec` and `store` map it to an answer or error."""

    OK = 0
    REPEATED = 1
    FOUND = 2
    NOT_FOUND = 3
    EXISTS = 4
    DEDUP_MISMATCH = 5
    PARENT_NOT_FOUND = 6
    LEASE_LOST = 7
    TOO_FAR = 8
    ETAG_MISMATCH = 9
    ILLEGAL = 10
    ENDED = 11
    RUNNING = 12


CONSTANTS: Mapping[str, int | Sequence[str]] = {
    **{f"CODE_{code.name}": code.value for code in Code},
    "ATTEMPTS_KEPT": limits.ATTEMPTS_KEPT,
    "BACKSTOP_LIVE": limits.BACKSTOP_LIVE_MS,
    "BACKSTOP_ENDED": limits.BACKSTOP_ENDED_MS,
    "CLAIM_REPEATABLE": limits.CLAIM_REPEATABLE_MS,
    "BASIC_FIELDS": BASIC_FIELDS,
    "FULL_FIELDS": FIELDS,
    **{name.upper(): FIELDS.index(name) + 1 for name in ("payload", "labels", "error")},
    "ENVELOPE": limits.ENVELOPE_BYTES,
    "UNDELIVERED_MAX": limits.UNDELIVERED_MAX,
    "WALK_EVERY": limits.WALK_EVERY_MS,
    "WALK_EXPIRY": limits.WALK_EXPIRY_MS,
    "WAITER_EXPIRY": limits.WAITER_EXPIRY_MS,
    "YEAR": limits.YEAR_MS,
}


class Source(NamedTuple):
    """A script's text, and its name in the engine's script cache."""

    text: str
    sha: str


class Script:
    """A Lua script, its parameters (first `now`, 0 for the engine's own clock), and its lists with their fields.

    `verbs`: the script is composed of these verbs (files that each define `<verb>_all`), in this order.
    """

    def __init__(
        self,
        name: str,
        params: Declaration = (),
        *,
        verbs: Sequence[str] = (),
        **lists: Declaration,
    ) -> None:
        self.name = name
        self.params = (("now", INT), *params)
        self.lists = lists
        self._verbs = verbs

    @cached_property
    def plain(self) -> Source:
        """What an engine with all its keys in one place runs."""
        return self._source(self._body())

    @cached_property
    def rehearsed(self) -> Source:
        """What an engine runs whose keys may move away under it (see `loader.rehearsed`)."""
        return self._source(rehearsed(self._body()))

    def _body(self) -> str:
        return resolve(*self._verbs) + composed(self._verbs) if self._verbs else resolve(self.name)

    def _source(self, body: str) -> Source:
        text = preamble(self.params, self.lists, CONSTANTS, {"route": ROUTE, "state": STATE}) + body
        return Source(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_JOB: Sequence[tuple[str, str]] = (("ns", STR), ("id", STR))
_LEASE: Sequence[tuple[str, str]] = (*_JOB, ("token", STR))
_QUEUE: Sequence[tuple[str, str]] = (("ns", STR), ("queue", STR))

_CLAIM: Sequence[tuple[str, str]] = (
    ("max_jobs", INT),
    ("max_bytes", INT),
    ("lease_ms", INT),
    ("receipt_ms", INT),
    ("worker", STR),
    ("token", STR),
    ("replica", STR),
    ("waiting", INT),
)
CREATE_ITEM: Sequence[tuple[str, str]] = (
    *_JOB,
    ("tenant", STR),
    ("queue", STR),
    ("parent", STR),
    ("parent_token", STR),
    ("dedup", STR),  # name of the dedup key, empty: none
    ("hash", STR),
    ("window", INT),
    ("request", STR),
    ("nonce", STR),
    ("status", STR),
    ("priority", INT),
    ("max_attempts", INT),
    ("run_at", INT),
    ("delay", INT),
    ("ttl", INT),
    ("queue_timeout", INT),
    ("lease", INT),
    ("spec", STR),
    ("labels", STR),
    ("ctype", STR),
    ("payload", STR),
)

CREATE = Script("create", items=CREATE_ITEM, verbs=["create"])
GET = Script("get", (("full", INT), ("budget", INT), ("watcher", STR)), items=_JOB)
EXISTS = Script("exists", _JOB)
LIST_IDS = Script("list_ids", (("ns", STR), ("created", INT), ("after", STR), ("limit", INT), ("slice", INT)))
LIST_CHILDREN = Script(
    "list_children",
    (("ns", STR), ("parent", STR), ("created", INT), ("after", STR), ("limit", INT), ("full", INT), ("budget", INT)),
)
UPDATE = Script(
    "update",
    (
        *_JOB,
        ("etag", STR),
        ("mark", STR),
        *((f"has_{name}", INT) for name in ("labels", "ttl", "payload", "ctype", "priority", "start")),
        *((f"has_{name}", INT) for name in ("status", "result", "error", "progress")),
        ("labels", STR),
        ("ttl", INT),
        ("payload", STR),
        ("ctype", STR),
        ("priority", INT),
        ("run_time", INT),
        ("delay", INT),
        ("status", STR),
        ("result", STR),
        ("error_bytes", STR),
        ("progress", STR),
        ("full", INT),
    ),
)
DELETE = Script("delete", (*_JOB, ("etag", STR)))
CANCEL = Script("cancel", (*_JOB, ("reason", STR), ("grace", INT)))
CLAIM = Script("claim", _CLAIM, queues=_QUEUE, verbs=["claim"])
LOOK = Script("look", (("replica", STR),), items=_QUEUE)
PASS_ON = Script("pass_on", _QUEUE)
HEARTBEAT = Script("heartbeat", items=(*_LEASE, ("has_progress", INT), ("progress", STR)))
HELD = Script("held", items=_LEASE)
SWEEP = Script("sweep", (("slice", INT), ("lost_error", STR), ("expired_error", STR)))
RECLAIM_STALE = Script(
    "reclaim_stale",
    (("before", INT), ("after_deadline", INT), ("after_ref", STR), ("limit", INT), ("lost_error", STR)),
)
AUDIT = Script("audit", (("lines_max", INT), ("cursor", STR), ("slice", INT)))
_WALK: Sequence[tuple[str, str]] = (("number", INT), ("cursor", STR), ("slice", INT))
REPAIR = Script("repair", (*_WALK, ("begins", INT)))
REPAIR_INDEXES = Script("repair_indexes", _WALK)
REPAIR_INDEX = Script("repair_index", (*_WALK, ("index", STR)))
REPAIR_COUNTS = Script("repair_counts", (*_WALK, ("second", INT)))
QUEUE_STATS = Script("queue_stats", (*_QUEUE, ("tenants", INT)))
LIST_QUEUES = Script("list_queues")
PING = Script("ping")

# Scripts that compose verbs. Each verb is a Lua function in a file of its name.
SETTLE = Script(  # complete, fail, release
    "settle",
    (("replica", STR),),
    items=(*_LEASE, ("verb", STR), ("final", INT), ("delay", INT), ("content", STR)),
    verbs=["settle"],
)
# What was just created goes to a stream that waits for it, or whatever comes before it in line does.
HAND_OFF = Script("hand_off", _CLAIM, items=CREATE_ITEM, queues=_QUEUE, verbs=["create", "claim"])

ALL = [value for value in list(globals().values()) if isinstance(value, Script)]
