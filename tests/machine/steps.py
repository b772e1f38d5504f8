"""What a history is made of: for each step, what its arguments are drawn from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from jobwire.v1 import job_pb2

IDS = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "a/x/z"])
QUEUES = st.sampled_from(["q", "r"])
SHORT = st.sampled_from([1.0, 2.0, 3.0, 5.0])
MAYBE_SHORT = st.none() | st.sampled_from([0.0]) | SHORT
CONTENT = st.sampled_from([b"", b"\x00\xff", b"x" * 2_000])
STATUSES = st.sampled_from(job_pb2.JobStatus.values()[1:])
REQUEST_IDS = st.sampled_from(["", "", "r1", "r2"])
ERRORS = st.builds(
    job_pb2.JobError, code=st.sampled_from(["", "C"]), retryable=st.sampled_from([None, None, True, False])
)
PROGRESS = st.none() | st.builds(job_pb2.Progress, fraction=st.sampled_from([0.0, 0.5]))


def given_some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


CREATES = given_some(
    job_id=IDS,
    queue=QUEUES,
    parent=st.just(True),
    tenant=st.sampled_from(["s", "t", "ä"]),
    priority=st.sampled_from([0, 1, -1]),
    delay=MAYBE_SHORT,
    key=st.sampled_from(["k", "l"]),
    window=SHORT,
    ttl=SHORT,
    request_id=REQUEST_IDS,
    queue_timeout=SHORT,
    lease=SHORT,
    max_attempts=st.sampled_from([1, 2, 3]),
    payload=CONTENT,
    labels=st.sampled_from([{}, {"l": "v"}]),
    status=STATUSES,
    kind=st.sampled_from(["", "kind"]),
    held=st.integers(0, 20),
)
UPDATES = given_some(
    labels=st.sampled_from([{}, {"x": "y"}]),
    ttl=SHORT,
    payload=CONTENT,
    content_type=st.sampled_from(["", "t"]),
    priority=st.sampled_from([0, 1]),
    delay=st.just(0.0) | SHORT,
    status=STATUSES,
    result=CONTENT,
    error=ERRORS,
    progress=PROGRESS,
    request_id=REQUEST_IDS,
)
SETTLEMENTS = st.tuples(
    st.sampled_from(["complete", "fail", "release"]), st.integers(0, 30), MAYBE_SHORT, ERRORS, CONTENT
)
LEASES = st.lists(st.tuples(st.integers(0, 30), PROGRESS), min_size=1, max_size=4)

CLAIMS = st.tuples(st.lists(QUEUES, min_size=1, unique=True), st.integers(1, 4))
SHARES = st.fixed_dictionaries(
    {"queue": st.just("q"), "tenant": st.sampled_from("stuv"), "priority": st.sampled_from([0, 0, 0, 1])},
    optional={"job_id": IDS, "delay": st.just(1.0), "queue_timeout": st.just(3.0)},
)

STEPS: dict[str, st.SearchStrategy[Any]] = {
    "create": CREATES,
    "share": SHARES,
    "batch_create": st.lists(CREATES, min_size=1, max_size=4),
    "hand_off": st.tuples(SHARES | CREATES, QUEUES, st.integers(1, 3), st.sampled_from([0, 1_000])),
    "claim": CLAIMS,
    "take": st.tuples(QUEUES, st.integers(1, 4), st.sampled_from([1, 5_000]), st.sampled_from([0, 0, 500])),
    "settle": st.lists(SETTLEMENTS, min_size=1, max_size=3),
    "heartbeat": LEASES,
    "update": st.tuples(IDS, UPDATES, st.sampled_from(["", "", "current", "stale"])),
    "delete": st.tuples(IDS, st.sampled_from(["", "", "current", "stale"])),
    "cancel": st.tuples(IDS, st.sampled_from([0, 1_000, 5_000])),
    "reclaim": st.tuples(st.none() | st.sampled_from([0, 1, 2_000]), st.integers(1, 3)),
    "sweep": st.none(),
    "read": st.none(),
    "advance": st.sampled_from([1, 500, 1_000, 2_000, 7_000]),
}
"""By the name of `Player`'s method, and "advance" for the clock."""
