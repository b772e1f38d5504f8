"""What is measured of every call: a count and a duration, and on the span of a unary call which job it is about.

The span is gRPC's own, made by the standard instrumentation if somebody set it up; a second one around the same work
would tell nothing more.
"""

from __future__ import annotations

import time

import grpc
from google.protobuf.message import Message
from jobwire.v1 import job_pb2
from opentelemetry import trace

from jobwire_server.dispatch.metrics import BOUNDARIES, meter

_operations = meter.create_counter(
    "jobwire.operations", unit="{operation}", description="Calls that ended, by `verb` and `outcome`"
)
_duration = meter.create_histogram(
    "jobwire.operation.duration",
    unit="s",
    description="How long a call took, its wait included, by `verb`; of streams not told",
    explicit_bucket_boundaries_advisory=BOUNDARIES,
)

_ID_CHARACTERS = 256
# A field of a request, and the attribute that tells it.
_ATTRIBUTES = {"namespace": "job.namespace", "id": "job.id", "job_id": "job.id", "parent_id": "job.id"}


def unary_ended(verb: str, outcome: str, began: float) -> None:
    """A call that began at `began` (performance counter). `outcome`: ok, cancelled, or the reason of a refusal."""
    _operations.add(1, {"verb": verb, "outcome": outcome})
    _duration.record(time.perf_counter() - began, {"verb": verb})


def stream_ended(verb: str, outcome: str) -> None:
    """A stream, which may have lasted for days."""
    _operations.add(1, {"verb": verb, "outcome": outcome})


def describe(request: Message) -> None:
    """Tells the span which job the call is about: ids, never payloads."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    for part in (
        request,
        getattr(request, "job", None),
        getattr(request, "lease", None),
        getattr(request, "ref", None),
    ):
        if isinstance(part, Message):
            _describe(span, part)
    queues = {ref.queue for ref in getattr(request, "queues", ())}
    if len(queues) == 1:
        span.set_attribute("job.queue", queues.pop()[:_ID_CHARACTERS])


def describe_answer(response: Message) -> None:
    """Tells the span which id was drawn."""
    job = getattr(response, "job", None)
    if isinstance(job, job_pb2.Job) and (span := trace.get_current_span()).is_recording():
        _describe(span, job)


def cancelled_by_caller() -> None:
    """The standard instrumentation takes a call without a status for one that went well."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attribute("rpc.grpc.status_code", grpc.StatusCode.CANCELLED.value[0])


def _describe(span: trace.Span, part: Message) -> None:
    for field, attribute in _ATTRIBUTES.items():
        value = getattr(part, field, "")
        if isinstance(value, str) and value:
            span.set_attribute(attribute, value[:_ID_CHARACTERS])
    queue = getattr(part, "queue", "")
    if isinstance(queue, str) and queue:
        span.set_attribute("job.queue", queue[:_ID_CHARACTERS])
