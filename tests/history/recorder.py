"""What the clients of a fault test did and heard, written down as it happened.

Times are `time.monotonic()` of the test's machine, one clock for all its processes. `began` is before a call was sent,
`ended` after its answer came, so that of two calls the one that ended before the other began was surely first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a call went, as far as its caller can tell."""

    SENT = "sent"
    """Written before the call is sent, by callers that may be killed. Its answer, if there is one, is another event."""
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
    """Of a delivery: when its lease was granted."""
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


class Journal:
    """A recorder's file, read while it is being written: each event once, so that long runs stay cheap to follow."""

    def __init__(self, path: Path) -> None:
        self.events: list[Event] = []
        """What was read so far, in the order in which it was written."""
        self._path = path
        self._read = 0

    def follow(self) -> list[Event]:
        """Reads on; the events that are new. A line that its writer has not ended yet stays for later."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._read += len(lines) + len(newline)
        new = [_event(line) for line in lines.splitlines()]
        self.events += new
        return new


def read(paths: Iterable[Path]) -> list[Event]:
    """The events of all files, in the order in which they ended."""
    events = [event for path in paths for event in Journal(path).follow()]
    return sorted(events, key=lambda event: event.ended)


def answered(events: Iterable[Event]) -> list[Event]:
    """Without those that were SENT: of each its answer, or else UNKNOWN, as its caller died before it heard."""
    events = list(events)
    known = {_name(event) for event in events if event.outcome is not Outcome.SENT}
    return [
        replace(event, outcome=Outcome.UNKNOWN) if event.outcome is Outcome.SENT else event
        for event in events
        if event.outcome is not Outcome.SENT or _name(event) not in known
    ]


def _name(event: Event) -> tuple[str, Call, str, str, float]:
    return event.client, event.call, event.job, event.token, event.began


def _event(line: bytes) -> Event:
    fields = json.loads(line)
    fields["call"], fields["outcome"] = Call(fields["call"]), Outcome(fields["outcome"])
    return Event(**fields)
