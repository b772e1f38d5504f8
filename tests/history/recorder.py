"""What the clients of a fault test did and heard, written down as it happened.

Times are `time.monotonic()` of the test's machine, one clock for all its processes. `began` is before a call was sent,
`ended` after its answer came, so that of two calls the one that ended before the other began was surely first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a call went, as far as its caller can tell."""

    OK = "ok"
    REFUSED = "refused"
    """It was not carried out, for certain."""
    UNKNOWN = "unknown"
    """UNAVAILABLE, a deadline, a cancel after sending: it was carried out or not."""


class Call(StrEnum):
    """What was called, or in the case of DELIVERED received."""

    CREATE = "create"
    DELIVERED = "delivered"
    HEARTBEAT = "heartbeat"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    CANCEL = "cancel"
    DELETE = "delete"


@dataclass(frozen=True)
class Event:
    """One call with its outcome."""

    call: Call
    job: str
    began: float
    ended: float
    outcome: Outcome = Outcome.OK
    client: str = ""
    token: str = ""
    attempt: int = 0
    """Of a delivery: which attempt it is."""
    lease: float = 0.0
    """Of a delivery: the lease in seconds."""
    content: str = ""
    """Of a completion: the result."""
    repeated: bool = False
    """Of a settlement: the server had it from an earlier try."""
    final: bool = False
    """Of a failure: the job has FAILED by it."""


class Recorder:
    """Writes events to a file, a line each. Each line is one write, so it survives whatever kills the writer."""

    def __init__(self, path: Path, client: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._client = client

    def write(self, call: Call, job: str, began: float, **more: object) -> None:
        """An event that has just ended."""
        event = Event(call, job, began, time.monotonic(), client=self._client, **more)  # type: ignore[arg-type]
        os.write(self._file, (json.dumps(asdict(event)) + "\n").encode())


def read(paths: Iterable[Path]) -> list[Event]:
    """The events of all files, in the order in which they ended."""
    events = []
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            fields = json.loads(line)
            fields["call"], fields["outcome"] = Call(fields["call"]), Outcome(fields["outcome"])
            events.append(Event(**fields))
    return sorted(events, key=lambda event: event.ended)
