"""The checker itself, on hand-made histories: good ones pass, each bad one is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from jobwire.v1 import job_pb2

from .checker import CANCELLED, FAILED, SUCCEEDED, check
from .recorder import Call, Event, Journal, Outcome, Recorder, read


def event(call: Call, at: float, **fields: object) -> Event:
    return Event(call, "a", at, at + 0.001, **fields)  # type: ignore[arg-type]


def record(status: job_pb2.JobStatus.ValueType = SUCCEEDED, **fields: object) -> job_pb2.Job:
    job = job_pb2.Job(id="a", queue="q", status=status, max_attempts=5, attempt=1)
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def with_lost_attempt(job: job_pb2.Job, seconds: int) -> job_pb2.Job:
    attempt = job.attempts.add(number=1, outcome=job_pb2.ATTEMPT_OUTCOME_LOST)
    attempt.start_time.seconds, attempt.finish_time.seconds = 100, 100 + seconds
    return job


CREATE = event(Call.CREATE, 0)
FIRST = event(Call.DELIVERED, 1, token="t1", attempt=1, lease=2.0, client="w1")
BEAT = event(Call.HEARTBEAT, 2, token="t1")
SECOND = event(Call.DELIVERED, 5, token="t2", attempt=2, lease=2.0, client="w2")
DONE = event(Call.COMPLETE, 3, token="t1", content="r")
DONE_2 = event(Call.COMPLETE, 6, token="t2", content="r")


def unknown(of: Event) -> Event:
    return dataclasses.replace(of, outcome=Outcome.UNKNOWN)


GOOD = {
    "lost after its whole lease": (
        [CREATE, FIRST, SECOND, DONE_2], with_lost_attempt(record(result=b"r", attempt=2, losses=1), 2),
    ),
    "done": ([CREATE, FIRST, BEAT, DONE], record(result=b"r")),
    "lost lease, done by another": ([CREATE, FIRST, BEAT, SECOND, DONE_2], record(result=b"r", attempt=2, losses=1)),
    "answer repeated": (
        [CREATE, FIRST, unknown(DONE), dataclasses.replace(DONE, began=4, ended=4.1, repeated=True)],
        record(result=b"r"),
    ),
    "repeated after a later attempt": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1"), SECOND,
         event(Call.FAIL, 5.5, token="t1", repeated=True), DONE_2],
        record(result=b"r", attempt=2, failures=1),
    ),
    "unknown create that took effect": ([unknown(CREATE), FIRST, DONE], record(result=b"r")),
    "unknown create that did not": ([unknown(CREATE)], None),
    "killed while its failure was on the way": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1", outcome=Outcome.SENT),
         dataclasses.replace(SECOND, began=2.5, ended=2.6), DONE_2],
        record(result=b"r", attempt=2, failures=1),
    ),
    "deleted": ([CREATE, event(Call.DELETE, 1)], None),
    "failed for good": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1", final=True)], record(FAILED, failures=1, max_attempts=1),
    ),
    "cancelled": ([CREATE, event(Call.CANCEL, 1)], record(CANCELLED, attempt=0)),
    "released early": (
        [CREATE, FIRST, event(Call.RELEASE, 1.5, token="t1"),
         dataclasses.replace(SECOND, began=1.6, ended=1.7), DONE_2],
        record(result=b"r", attempt=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    events, job = GOOD[name]
    assert check(events, {"a": job} if job else {}) == []


BAD = {
    "lost": ([CREATE], None, "no record"),
    "a ghost": ([FIRST, DONE], record(result=b"r"), "nobody created"),
    "a ghost record": ([], record(), "nobody created"),
    "stuck": ([CREATE, FIRST], record(job_pb2.JOB_STATUS_RUNNING), "stuck"),
    "waiting for ever": ([CREATE], record(job_pb2.JOB_STATUS_PENDING, attempt=0), "stuck"),
    "completed twice": ([CREATE, FIRST, DONE, SECOND, DONE_2], record(result=b"r", attempt=2), "completed twice"),
    "completed and failed": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1", final=True), DONE],
        record(result=b"r", failures=1), "ended twice",
    ),
    "delivered after its end": ([CREATE, FIRST, DONE, SECOND], record(result=b"r", attempt=2), "after its end"),
    "completion forgotten": ([CREATE, FIRST, DONE], record(FAILED), "acknowledged, but it is"),
    "another result": ([CREATE, FIRST, DONE], record(result=b"other"), "not what was acknowledged"),
    "a stale heartbeat accepted": (
        [CREATE, FIRST, SECOND, event(Call.HEARTBEAT, 5.5, token="t1"), DONE_2],
        record(result=b"r", attempt=2, losses=1), "heartbeat of attempt 1 was accepted",
    ),
    "a stale completion accepted": (
        [CREATE, FIRST, SECOND, dataclasses.replace(DONE, began=5.5, ended=5.6)],
        record(result=b"r", attempt=2, losses=1), "complete of attempt 1 was accepted",
    ),
    "a lease ended early": (
        [CREATE, FIRST, BEAT, dataclasses.replace(SECOND, began=3.4, ended=3.5), DONE_2],
        record(result=b"r", attempt=2, losses=1), "ended early",
    ),
    "a lease ended early by the engine's clock": (
        [CREATE, FIRST, SECOND, DONE_2], with_lost_attempt(record(result=b"r", attempt=2, losses=1), 1), "ended early",
    ),
    "an attempt twice": (
        [CREATE, FIRST, dataclasses.replace(FIRST, token="t9", client="w2"), DONE],
        record(result=b"r"), "delivered twice",
    ),
    "an attempt uncounted": (
        [CREATE, FIRST, SECOND, DONE_2], record(result=b"r", attempt=1, losses=1), "does not count",
    ),
    "a failure uncounted": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1"), SECOND, DONE_2], record(result=b"r", attempt=2), "1 failures",
    ),
    "a failure invented": ([CREATE, FIRST, DONE], record(result=b"r", failures=1), "the record counts 1"),
    "a failure that was refused, but counted": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1", outcome=Outcome.SENT),
         event(Call.FAIL, 2, token="t1", outcome=Outcome.REFUSED), SECOND, DONE_2],
        record(result=b"r", attempt=2, failures=1), "the record counts 1",
    ),
    "beyond the limit": (
        [CREATE, FIRST, event(Call.FAIL, 2, token="t1")], record(FAILED, failures=1, losses=5), "of at most 5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_named(name: str) -> None:
    events, job, words = BAD[name]
    problems = check(events, {"a": job} if job else {})
    assert any(words in problem for problem in problems), problems


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    one, two = Recorder(tmp_path / "1", "w1"), Recorder(tmp_path / "2", "w2")
    one.write(Call.CREATE, "a", 0.0)
    two.write(Call.DELIVERED, "a", 1.0, token="t", attempt=1, lease=2.0)
    one.write(Call.COMPLETE, "a", 2.0, token="t", outcome=Outcome.UNKNOWN, content="r")
    events = read([tmp_path / "1", tmp_path / "2", tmp_path / "none"])
    assert [(event.call, event.client, event.outcome) for event in events] == [
        (Call.CREATE, "w1", Outcome.OK),
        (Call.DELIVERED, "w2", Outcome.OK),
        (Call.COMPLETE, "w1", Outcome.UNKNOWN),
    ]


def test_a_history_is_followed_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "1"
    journal = Journal(path)
    assert journal.follow() == []
    recorder = Recorder(path, "w1")
    recorder.write(Call.CREATE, "a", 0.0)
    assert [event.job for event in journal.follow()] == ["a"]
    recorder.write(Call.CREATE, "b", 0.0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert journal.follow() == []
    path.write_bytes(whole)
    assert [event.job for event in journal.follow()] == ["b"]
    assert [event.job for event in journal.events] == ["a", "b"]
