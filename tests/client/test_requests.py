"""Requests from plain values, and the channel options of a target."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import jobwire
import pytest
from jobwire._endpoint import is_local
from jobwire._requests import duration, queue_refs, timestamp


def test_spans_are_timedeltas_or_seconds() -> None:
    assert duration(timedelta(minutes=1)) == duration(60)
    span = duration(0.25)
    assert span is not None
    assert (span.seconds, span.nanos) == (0, 250_000_000)
    assert duration(None) is None
    with pytest.raises(ValueError, match="NaN"):
        duration(math.nan)


def test_times_need_a_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        timestamp(datetime(2026, 1, 1))  # noqa: DTZ001 - the point
    assert timestamp(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == timestamp(
        datetime(2026, 1, 1, tzinfo=UTC)
    )


def test_one_queue_is_not_a_list_of_letters() -> None:
    assert [ref.queue for ref in queue_refs("batch", "default")] == ["batch"]
    other = jobwire.QueueRef(namespace="other", queue="b")
    assert queue_refs(["a", other], "mine") == [jobwire.QueueRef(namespace="mine", queue="a"), other]


def test_a_new_job() -> None:
    request = jobwire.new_job(
        queue="q",
        kind="k",
        payload="grüße",
        ttl=timedelta(hours=1),
        labels={"a": "b"},
        delay=2,
        dedup_key="key",
        dedup_window=60,
        parent_token="t",
    )
    assert request.job.payload == "grüße".encode()
    assert request.job.ttl.seconds == 3_600
    assert dict(request.job.labels) == {"a": "b"}
    assert request.delay.seconds == 2
    assert (request.job.dedup.key, request.job.dedup.window.seconds) == ("key", 60)
    assert request.job_id == ""
    assert not request.job.HasField("queue_timeout")


def test_a_drawn_child_id_is_below_its_parent() -> None:
    request = jobwire.new_job(ttl=60, parent="a/b")
    assert request.job_id.startswith("a/b/")
    assert request.job.parent_id == "a/b"


def test_a_misspelt_keyword_is_refused() -> None:
    with pytest.raises(TypeError):
        jobwire.new_job(ttl=60, que="q")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:50051",
        "localhost:50051",
        "[::1]:50051",
        "127.8.8.8:1",
        "unix:/run/jobwire.sock",
        "unix:///run/jobwire.sock",
        "unix-abstract:jobwire",
        "dns:///localhost:50051",
        "ipv4:127.0.0.1:50051,127.0.0.2:50052",
        "ipv6:[::1]:50051,[::1]:50052",
        "ipv4:127.0.0.1:50051",
        "ipv6:[::1]:50051",
    ],
)
def test_local_targets(target: str) -> None:
    assert is_local(target)


@pytest.mark.parametrize(
    "target",
    [
        "jobs.example:50051",
        "10.0.0.1:50051",
        "[2001:db8::1]:1",
        "dns:///jobs:50051",
        "ipv4:127.0.0.1:50051,10.0.0.1:50051",
    ],
)
def test_other_targets(target: str) -> None:
    assert not is_local(target)


async def test_e17_a_proxy_in_the_environment_is_not_asked_for_loopback(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with jobwire.connect(address, timeout=2) as client:
        assert not await client.exists("a")
