"""The submitter's trace context travels in the job, and the span of each attempt links to it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import jobwire
import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.app import running
from jobwire_server.store.memory import MemoryStore
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from tests.client.test_worker_leases import Sleeper
from tests.client.working import ended, status_of, working
from tests.telemetry import Recorded
from tests.wait import wait_until

TRACER = trace.get_tracer("test")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextlib.contextmanager
def remote(state: str) -> Iterator[None]:
    """A span of another process is current."""
    context = SpanContext(
        int(TRACEPARENT.split("-")[1], 16),
        int(TRACEPARENT.split("-")[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(1),
        trace_state=TraceState([("vendor", state)]),
    )
    with trace.use_span(NonRecordingSpan(context)):
        yield


def attempts(recorded: Recorded) -> list[ReadableSpan]:
    """The spans of attempts."""
    return recorded.spans("jobwire.run")


def attributes(span: ReadableSpan) -> dict[str, object]:
    """Of a span."""
    return dict(span.attributes or {})


async def test_a_job_carries_its_submitters_trace_context(client: jobwire.Client, address: str) -> None:
    with remote("congo"):
        job = await client.create(queue="q", ttl=60)
        request = jobwire.new_job(queue="q", ttl=60)
        [many] = await client.create_many([jobwire.new_job(queue="q", ttl=60)])
        raw = jobwire.CreateRequest()
        raw.job.queue = "q"
        raw.job.ttl.FromSeconds(60)
        bare = await client.create_from(raw)
        with jobwire.connect_sync(address) as sync_client:
            blocking = await asyncio.to_thread(sync_client.create, queue="q", ttl=60)
        state_only = await client.create(ttl=60)
        own = await client.create(queue="q", ttl=60, trace_context=job_pb2.TraceContext(traceparent="own"))
        none = await client.create(queue="q", ttl=60, trace_context=job_pb2.TraceContext())
    outside = await client.create(queue="q", ttl=60)

    expected = job_pb2.TraceContext(traceparent=TRACEPARENT, tracestate="vendor=congo")
    assert isinstance(many, store_pb2.CreateResponse)
    for one in (job, request.job, many.job, bare.job, blocking):
        assert one.trace_context == expected
    assert not raw.job.HasField("trace_context"), "a caller's message is never changed"
    assert own.trace_context.traceparent == "own"
    for one in (state_only, none, outside):
        assert not one.trace_context.traceparent


async def test_a_trace_state_that_no_job_may_carry_is_left_behind(client: jobwire.Client) -> None:
    state = TraceState([(f"vendor{number}", "v" * 200) for number in range(4)])
    parent = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    with trace.use_span(NonRecordingSpan(parent)):
        job = await client.create(queue="q", ttl=60)
    assert job.trace_context.traceparent.startswith("00-")
    assert not job.trace_context.tracestate


async def test_every_attempt_links_to_the_submitter(client: jobwire.Client, recorded: Recorded) -> None:
    worker = jobwire.Worker(client, queues="q")
    inside: list[int] = []

    @worker.handler("flaky")
    async def flaky(job: jobwire.JobContext) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if job.job.attempt == 1:
            raise jobwire.Release
        if job.job.attempt == 2:
            raise jobwire.Retry(0.01, "once more", code="BUSY")
        if job.job.attempt == 3:
            raise ValueError("no luck")

    @worker.handler("plain")
    def plain(job: jobwire.JobContext) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    retry = job_pb2.RetryPolicy()
    retry.initial_backoff.FromMilliseconds(10)
    with TRACER.start_as_current_span("submit") as submit:
        async with working(worker):
            job = await client.create(queue="q", kind="flaky", payload="secret", ttl=60, retry=retry)
            await ended(client, job)
            other = await client.create(queue="q", kind="plain", ttl=60)
            await ended(client, other)
            await wait_until(lambda: len(attempts(recorded)) == 5)

    spans = attempts(recorded)
    assert [attributes(span)["jobwire.outcome"] for span in spans] == [
        *("release", "fail", "fail", "complete"),
        "complete",
    ]
    assert [span.context.span_id for span in spans if span.context] == inside
    for number, span in enumerate(spans[:4], start=1):
        assert span.kind is SpanKind.CONSUMER
        assert span.parent is None
        assert span.context is not None
        assert span.context.trace_id != submit.get_span_context().trace_id
        told = attributes(span)
        del told["jobwire.outcome"]
        assert told == {
            "job.id": job.id,
            "job.namespace": "default",
            "job.queue": "q",
            "job.kind": "flaky",
            "job.attempt": number,
        }
        assert "secret" not in span.to_json()
    for span in spans:
        [link] = span.links
        assert (link.context.trace_id, link.context.span_id) == (
            submit.get_span_context().trace_id,
            submit.get_span_context().span_id,
        )
    assert [(span.status.status_code, span.status.description) for span in spans] == [
        (StatusCode.UNSET, None),
        (StatusCode.ERROR, "BUSY"),
        (StatusCode.ERROR, "HANDLER_FAILED"),
        (StatusCode.UNSET, None),
        (StatusCode.UNSET, None),
    ]
    [raised] = spans[2].events
    assert (raised.attributes or {})["exception.message"] == "no luck"


async def test_a_handlers_own_jobs_link_to_its_attempt(client: jobwire.Client, recorded: Recorded) -> None:
    worker = jobwire.Worker(client, queues="q")

    @worker.handler("parent")
    async def parent(job: jobwire.JobContext) -> str:
        return (await job.create_child(queue="q", kind="child", ttl=60)).id

    @worker.handler("plain parent")
    def plain_parent(job: jobwire.JobContext) -> str:
        return job.create_child_sync(queue="q", kind="child", ttl=60).id

    @worker.handler("child")
    async def child(job: jobwire.JobContext) -> None: ...

    async with working(worker):
        for kind in ("parent", "plain parent"):
            job = await ended(client, await client.create(queue="q", kind=kind, ttl=60))
            await ended(client, await client.get(job.result.decode()))
        await wait_until(lambda: len(attempts(recorded)) == 4)
    by_id = {str(attributes(span)["job.id"]): span for span in attempts(recorded)}
    children = [(span, by_id[job_id.rpartition("/")[0]]) for job_id, span in by_id.items() if "/" in job_id]
    assert len(children) == 2
    for span, parents in children:
        assert parents.context is not None
        assert not parents.links
        [link] = span.links
        assert link.context.span_id == parents.context.span_id


async def test_a_redelivered_job_links_all_the_same(recorded: Recorded) -> None:
    """The first worker is taken down with the job; the second attempt is another worker's, through another server."""
    store = MemoryStore()
    async with (
        running(store) as one,
        running(store) as two,
        jobwire.connect(one.address) as client,
        jobwire.connect(two.address) as other,
    ):
        first = jobwire.Worker(client, queues="q", drain_grace=0)
        sleeper = Sleeper(first)
        with TRACER.start_as_current_span("submit") as submit:
            job = await client.create(queue="q", ttl=60)
        async with working(first):
            await sleeper.begun.wait()
        second = jobwire.Worker(other, queues="q")
        Sleeper(second).go_on.set()
        async with working(second):
            await ended(other, job)
        await wait_until(lambda: len(attempts(recorded)) == 2)
    assert [attributes(span)["jobwire.outcome"] for span in attempts(recorded)] == ["release", "complete"]
    for span in attempts(recorded):
        [link] = span.links
        assert link.context.span_id == submit.get_span_context().span_id


async def test_a_lost_lease_and_a_cancelled_job_mark_the_span(client: jobwire.Client, recorded: Recorded) -> None:
    worker = jobwire.Worker(client, queues="q")
    sleeper = Sleeper(worker)
    async with working(worker):
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        await client.delete(job.id)
        await wait_until(lambda: len(attempts(recorded)) == 1, seconds=60)
        sleeper.begun.clear()
        job = await client.create(queue="q", ttl=60)
        await sleeper.begun.wait()
        await client.cancel(job.id, grace=30)
        await ended(client, job, "CANCELLED")
        await wait_until(lambda: len(attempts(recorded)) == 2)
    lost, cancelled = attempts(recorded)
    assert attributes(lost)["jobwire.outcome"] == "lost"
    assert (lost.status.status_code, lost.status.description) == (StatusCode.ERROR, "the lease was lost")
    assert attributes(cancelled)["jobwire.outcome"] == "fail"
    assert cancelled.status.description == "CANCELLED"


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_what_is_no_trace_context_is_not_linked(
    traceparent: str, client: jobwire.Client, recorded: Recorded
) -> None:
    worker = jobwire.Worker(client, queues="q")

    @worker.handler()
    async def handle(job: jobwire.JobContext) -> None: ...

    async with working(worker):
        context = job_pb2.TraceContext(traceparent=traceparent)
        job = await ended(client, await client.create(queue="q", ttl=60, trace_context=context))
        await wait_until(lambda: len(attempts(recorded)) == 1)
    assert await status_of(client, job.id) == "SUCCEEDED"
    assert not attempts(recorded)[0].links


async def test_nothing_happens_without_the_api(address: str) -> None:
    script = """
import asyncio, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import jobwire

async def main():
    async with jobwire.connect(sys.argv[1]) as client:
        worker = jobwire.Worker(client, queues="q")

        @worker.handler()
        async def handle(job):
            if job.job.attempt == 1:
                raise jobwire.Retry(0)
            return job.payload

        serving = asyncio.create_task(worker.serve())
        job = await client.create(queue="q", payload="p", ttl=60)
        assert not job.HasField("trace_context")
        assert (await client.get(job.id, full=True, wait=60)).result == b"p"
        worker.stop()
        await serving

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    command = [sys.executable, "-W", "error", "-c", script, address]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)
