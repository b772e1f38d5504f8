"""Checks a history against the rules of a job's life (docs/protocol.md).

Only what is certain counts as a violation: an unknown outcome may have been either, and of two calls that overlap in
time either may have been first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf

from jobwire.v1 import job_pb2
from jobwire_server.store.times import timestamp_ms

from .recorder import Call, Event, Outcome, answered

SUCCEEDED, FAILED, CANCELLED = (
    job_pb2.JOB_STATUS_SUCCEEDED,
    job_pb2.JOB_STATUS_FAILED,
    job_pb2.JOB_STATUS_CANCELLED,
)
TERMINAL = {SUCCEEDED, FAILED, CANCELLED}
# What two processes' clocks, and the engine's milliseconds, may differ by.
SLACK_SECONDS = 0.05


def check(events: Sequence[Event], records: Mapping[str, job_pb2.Job]) -> list[str]:
    """The violations, as sentences. `records`: every job that exists at the end, when nothing is left to do."""
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in answered(events):
        by_job[event.job].append(event)
    found: list[str] = []
    for job in sorted({*by_job, *records}):
        found += (f"{job}: {problem}" for problem in _check_job(by_job[job], records.get(job)))
    return found


def _check_job(events: Sequence[Event], record: job_pb2.Job | None) -> Iterable[str]:
    created = [event for event in events if event.call is Call.CREATE and event.outcome is not Outcome.REFUSED]
    deleted = any(event.call is Call.DELETE and event.outcome is not Outcome.REFUSED for event in events)
    acknowledged = any(event.outcome is Outcome.OK for event in created)
    if not created and (record is not None or events):
        yield "a ghost: nobody created it"
    if acknowledged and not deleted and record is None:
        yield "lost: its Create was acknowledged and there is no record"
    if record is not None and record.queue and record.status not in TERMINAL:
        yield f"stuck: it is {job_pb2.JobStatus.Name(record.status)} when nothing is left to do"
    yield from _check_settlements(events, record)
    yield from _check_holders(events)
    if record is not None:
        yield from _check_counts(events, record)


def _of(events: Iterable[Event], *calls: Call, outcome: Outcome = Outcome.OK) -> list[Event]:
    return [event for event in events if event.call in calls and event.outcome is outcome]


def _check_settlements(events: Sequence[Event], record: job_pb2.Job | None) -> Iterable[str]:
    completions = _of(events, Call.COMPLETE)
    tokens = {event.token for event in completions}
    if len(tokens) > 1:
        yield f"completed twice: {len(tokens)} leases' completions were accepted"
    ends = completions + [event for event in _of(events, Call.FAIL) if event.final]
    if completions and any(event.call is Call.FAIL for event in ends):
        yield "ended twice: a completion and a final failure were accepted"
    if ends:
        known = min(event.ended for event in ends)
        late = [event for event in _of(events, Call.DELIVERED) if event.began > known + SLACK_SECONDS]
        if late:
            yield f"delivered to {late[0].client} after its end was acknowledged"
    if completions and record is not None:
        if record.status != SUCCEEDED:
            yield f"a completion was acknowledged, but it is {job_pb2.JobStatus.Name(record.status)}"
        elif record.result.decode() not in {event.content for event in completions}:
            yield f"its result is {record.result!r}, not what was acknowledged"


def _check_holders(events: Sequence[Event]) -> Iterable[str]:
    """One holder at a time, nobody else's word counts, and no lease ends early."""
    deliveries = sorted(_of(events, Call.DELIVERED), key=lambda event: event.attempt)
    attempts = [event.attempt for event in deliveries]
    if len(set(attempts)) != len(attempts):
        yield f"an attempt was delivered twice: {attempts}"
    for earlier, later in pairwise(deliveries):
        words = [event for event in events if event.token == earlier.token and event.outcome is Outcome.OK]
        for event in words:
            # A repeated settlement only repeats what was accepted while it held the lease.
            if event.call is not Call.DELIVERED and not event.repeated and event.began > later.ended + SLACK_SECONDS:
                yield f"{event.call} of attempt {earlier.attempt} was accepted after the delivery of {later.attempt}"
        given_back = any(
            event.token == earlier.token and event.call in (Call.COMPLETE, Call.FAIL, Call.RELEASE)
            and event.outcome is not Outcome.REFUSED
            for event in events
        )  # fmt: skip
        # A heartbeat extended the lease after it was sent. (When a delivery's claim was, only the engine knows.)
        kept = max((event.began for event in words if event.call is Call.HEARTBEAT), default=-inf)
        if earlier.lease and not given_back and later.ended < kept + earlier.lease - SLACK_SECONDS:
            yield f"attempt {earlier.attempt}'s lease ended early: {later.ended - kept:.3f} of {earlier.lease} s"


def _check_counts(events: Sequence[Event], record: job_pb2.Job) -> Iterable[str]:
    delivered = _of(events, Call.DELIVERED)
    leases = {event.attempt: event.lease for event in delivered}
    for attempt in record.attempts:
        # Both by the engine's clock, to the millisecond.
        lasted = (timestamp_ms(attempt.finish_time) - timestamp_ms(attempt.start_time)) / 1_000
        if attempt.outcome == job_pb2.ATTEMPT_OUTCOME_LOST and lasted < leases.get(attempt.number, 0.0):
            yield f"attempt {attempt.number}'s lease ended early, after {lasted} s by the engine's clock"
    if delivered and max(event.attempt for event in delivered) > record.attempt:
        yield f"an attempt was delivered that the record ({record.attempt}) does not count"
    failures = {event.token for event in _of(events, Call.FAIL)}
    unsure = {event.token for event in _of(events, Call.FAIL, outcome=Outcome.UNKNOWN)} - failures
    if not len(failures) <= record.failures <= len(failures) + len(unsure):
        yield f"{len(failures)} failures were acknowledged, the record counts {record.failures}"
    if record.failures + record.losses > record.max_attempts > 0:
        yield f"{record.failures} failures and {record.losses} losses of at most {record.max_attempts}"
