"""What a handler returns or raises becomes a settlement that the server cannot refuse for its text."""

from __future__ import annotations

import jobwire
import pytest
from jobwire._outcome import backoff, error_of, raised, returned
from jobwire.v1 import job_pb2

LEASE = jobwire.LeaseRef(id="a", token="t")
JOB = jobwire.Job(id="a")


def caught(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except BaseException as raised_error:
        return raised_error


def test_results() -> None:
    assert returned(LEASE, None).complete.result == b""
    assert returned(LEASE, b"\x00\xff").complete.result == b"\x00\xff"
    assert returned(LEASE, "grüße").complete.result == "grüße".encode()
    with pytest.raises(TypeError, match="dict"):
        returned(LEASE, {})


def test_exceptions() -> None:
    fail = raised(LEASE, JOB, caught(KeyError("x"))).fail
    assert (fail.error.code, fail.error.type, fail.error.message) == ("HANDLER_FAILED", "builtins.KeyError", "'x'")
    assert "Traceback" in fail.error.stack
    assert not fail.error.HasField("retryable")
    assert 0 <= fail.delay.ToNanoseconds() <= 1e9

    final = raised(LEASE, JOB, caught(jobwire.NonRetryable("no", code="BAD_INPUT"))).fail
    assert (final.error.code, final.error.message, final.error.retryable) == ("BAD_INPUT", "no", False)
    assert final.error.HasField("retryable")

    retry = raised(LEASE, JOB, caught(jobwire.Retry(2.5, "later"))).fail
    assert (retry.delay.seconds, retry.delay.nanos, retry.error.message) == (2, 500_000_000, "later")

    release = raised(LEASE, JOB, caught(jobwire.Release(3))).release
    assert release.delay.seconds == 3
    assert not raised(LEASE, JOB, caught(jobwire.Release())).release.HasField("delay")


def test_error_text_is_cut_and_clean() -> None:
    error = error_of(caught(ValueError("\ud800 \x00 \x1b[31m" + "m" * 5_000_000)), code="C\n" * 200)
    assert len(error.message.encode()) + len(error.stack.encode()) <= 16 * 1024
    assert error.message.startswith("\\ud800 \x00 \x1b[31m")
    assert len(error.code) <= 128
    assert error.code.isprintable()

    name = "N" * 500
    long_type = type(name, (Exception,), {})
    assert len(error_of(caught(long_type())).type) <= 128


def test_backoff_follows_the_jobs_policy() -> None:
    assert 0 <= backoff(JOB) <= 1
    job = jobwire.Job(failures=3, retry=job_pb2.RetryPolicy(multiplier=2))
    job.retry.initial_backoff.seconds = 1
    job.retry.max_backoff.seconds = 6
    drawn = [backoff(job) for _ in range(500)]
    assert 0 <= min(drawn) < 1
    assert 5 < max(drawn) <= 6
    job.failures = 100_000
    assert backoff(job) <= 6
