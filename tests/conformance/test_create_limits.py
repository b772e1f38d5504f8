"""Every limit of a CreateRequest, from the table in job.proto: the limit itself passes, one more does not."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import create, seconds

from .bench import Bench, refusal

DAY = 86_400.0
YEAR = 366 * DAY


def job(**fields: Any) -> store_pb2.CreateRequest:
    """A queue job whose fields are set as they come, spans as Durations."""
    return store_pb2.CreateRequest(job=job_pb2.Job(**{"queue": "q", "ttl": seconds(60), **fields}))


def dedup(**fields: Any) -> store_pb2.CreateRequest:
    return job(dedup=job_pb2.Dedup(**{"key": "k", **fields}))


def retry(**fields: Any) -> store_pb2.CreateRequest:
    return job(retry=job_pb2.RetryPolicy(**fields))


WITHIN = {
    "job_id": [create("x" * 256), create("ä" * 128), create("a/b/c/d/e/f/g/h"), create("a b{}:*?'\"\\")],
    "job.namespace": [job(namespace="x" * 128), job(namespace="ü")],
    "job.tenant": [job(tenant="x" * 128)],
    "job.queue": [job(queue="x" * 128)],
    "job.kind": [job(kind="x" * 128)],
    "job.content_type": [job(content_type="x" * 128)],
    "request_id": [create("a", request_id="x" * 128)],
    "job.dedup.key": [dedup(key="x" * 256)],
    "job.dedup.window": [dedup(key="k1", window=seconds(1)), dedup(key="k2", window=seconds(30 * DAY))],
    "job.labels": [job(labels={f"{i:064}": "v" * 256 for i in range(32)})],
    "job.trace_context": [job(trace_context=job_pb2.TraceContext(traceparent="x" * 128, tracestate="x" * 512))],
    "job.priority": [job(priority=100), job(priority=-100)],
    "job.max_attempts": [job(max_attempts=1), job(max_attempts=1_000)],
    "job.retry": [
        retry(initial_backoff=seconds(0.001), max_backoff=seconds(DAY), multiplier=1),
        retry(multiplier=10),
    ],
    "job.lease_duration": [job(lease_duration=seconds(0.5)), job(lease_duration=seconds(3_600))],
    "job.ttl": [job(ttl=seconds(1)), job(ttl=seconds(YEAR))],
    "job.queue_timeout": [job(queue_timeout=seconds(1)), job(queue_timeout=seconds(YEAR))],
    "delay": [create(queue="q", delay=0), create(queue="q", delay=YEAR)],
    "job.run_time": [create(queue="q", run_at=-62_135_596_800_000)],
}

BEYOND = {
    "job_id": [
        create("x" * 257), create("ä" * 129), create("a/b/c/d/e/f/g/h/i"), create("/a"), create("a/"), create("a//b"),
        create("a\nb"), create("a\x00b"), create("a\x1fb"), create("a\u2028b"), create("a\x85b"),
        create("a", key="k"), create("p", parent_id="p"), create("q/a", parent_id="p"), create("p/a/b", parent_id="p"),
    ],
    "job.parent_id": [create(parent_id="a/b/c/d/e/f/g/h"), create(parent_id="x" * 250), create(parent_id="/")],
    "parent_token": [create(parent_token="t"), create("p/a", parent_id="p", parent_token="x" * 129)],
    "job.namespace": [job(namespace="x" * 129), job(namespace="a\tb")],
    "job.tenant": [job(tenant="x" * 129), job(tenant="\x7f")],
    "job.queue": [job(queue="x" * 129), job(queue="a\x1fb")],
    "job.kind": [job(kind="x" * 129)],
    "job.content_type": [job(content_type="x" * 129)],
    "request_id": [create("a", request_id="x" * 129), create(request_id="x")],
    "job.dedup.key": [dedup(key=""), dedup(key="x" * 257), dedup(key="a\nb")],
    "job.dedup.window": [dedup(window=seconds(0.999)), dedup(window=seconds(30 * DAY + 0.001))],
    "job.dedup.on_conflict": [dedup(on_conflict=job_pb2.DEDUP_CONFLICT_REJECT)],
    "job.dedup.scope": [dedup(scope=77)],
    "job.labels": [
        job(labels={str(i): "" for i in range(33)}), job(labels={"": "v"}), job(labels={"x" * 65: "v"}),
        job(labels={"k": "v" * 257}), job(labels={"k": "a\nb"}),
    ],
    "job.payload": [job(payload=bytes(1_900_001))],
    "job.trace_context.traceparent": [job(trace_context=job_pb2.TraceContext(traceparent="x" * 129))],
    "job.trace_context.tracestate": [job(trace_context=job_pb2.TraceContext(tracestate="x" * 513))],
    "job.priority": [job(priority=101), job(priority=-101), create(priority=1)],
    "job.max_attempts": [job(max_attempts=1_001), job(max_attempts=-1), create(max_attempts=3)],
    "job.retry.initial_backoff": [retry(initial_backoff=seconds(0)), retry(initial_backoff=seconds(DAY + 0.001))],
    "job.retry.max_backoff": [retry(max_backoff=seconds(-1))],
    "job.retry.multiplier": [retry(multiplier=0.5), retry(multiplier=10.1), retry(multiplier=float("nan"))],
    "job.lease_duration": [job(lease_duration=seconds(0.499)), job(lease_duration=seconds(3_600.001)), create(lease=9)],
    "job.ttl": [
        store_pb2.CreateRequest(job=job_pb2.Job(queue="q")), store_pb2.CreateRequest(), job(ttl=seconds(0.999)),
        job(ttl=seconds(YEAR + 0.001)), job(ttl=duration_pb2.Duration(seconds=60, nanos=-1)),
        job(ttl=duration_pb2.Duration(seconds=2**62)),
    ],
    "job.queue_timeout": [job(queue_timeout=seconds(0)), job(queue_timeout=seconds(YEAR + 1)), create(queue_timeout=9)],
    "delay": [create(queue="q", delay=-1), create(queue="q", delay=YEAR + 1), create(delay=1),
              create(queue="q", delay=1, run_at=1)],
    "job.run_time": [job(run_time=timestamp_pb2.Timestamp(seconds=2**50)), create(run_at=5)],
    "job.status": [job(status=job_pb2.JOB_STATUS_RUNNING), create(status=77)],
    "job.id": [job(id="x")],
    "job.result": [job(result=b"x")],
    "job.attempt": [job(attempt=1)],
    "job.version": [job(version=1)],
    "job.expire_time": [job(expire_time=timestamp_pb2.Timestamp(seconds=1))],
    "durability.level": [store_pb2.CreateRequest(job=job_pb2.Job(ttl=seconds(60)),
                                                 durability=store_pb2.DurabilityRequest(level=store_pb2.Durability.ValueType(77)))],
}  # fmt: skip


@pytest.mark.parametrize("field", WITHIN)
async def test_the_limit_itself_is_within(bench: Bench, field: str) -> None:
    for request in WITHIN[field]:
        assert (await bench.verbs.create(request)).created


async def test_beyond_a_limit_is_refused_by_the_fields_name(bench: Bench) -> None:
    for field, requests in BEYOND.items():
        for request in requests:
            error = await refusal(bench.verbs.create(request))
            assert error.reason == job_pb2.ERROR_REASON_FIELD_INVALID, request
            assert field in error.fields, (request, error.fields)
            assert field in error.message
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == []


async def test_all_problems_are_named_at_once(bench: Bench) -> None:
    request = create("a\n", "q", ttl=0, priority=500, max_attempts=-3)
    error = await refusal(bench.verbs.create(request))
    assert set(error.fields) == {"job_id", "job.ttl", "job.priority", "job.max_attempts"}


NOT_SERVED = {
    "job.max_run_time": job(max_run_time=seconds(60)),
    "job.children.wait": job(children=job_pb2.ChildPolicy(wait=True)),
    "job.dedup.scope LIVE": dedup(scope=job_pb2.DEDUP_SCOPE_LIVE),
    "durability DURABILITY_FSYNC": store_pb2.CreateRequest(
        job=job_pb2.Job(ttl=seconds(60)), durability=store_pb2.DurabilityRequest(level=store_pb2.DURABILITY_FSYNC)
    ),
    "durability DURABILITY_REPLICATED": store_pb2.CreateRequest(
        job=job_pb2.Job(ttl=seconds(60)),
        durability=store_pb2.DurabilityRequest(level=store_pb2.DURABILITY_REPLICATED, replicas=1),
    ),
}


async def test_what_this_release_does_not_serve_is_said_by_name(bench: Bench) -> None:
    for name, request in NOT_SERVED.items():
        error = await refusal(bench.verbs.create(request))
        assert error.reason == job_pb2.ERROR_REASON_NOT_SERVED, name
        assert name in error.message
