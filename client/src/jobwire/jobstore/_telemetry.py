"""A span, a count and a duration per verb, through OpenTelemetry's API where that is installed (`jobwire[otel]`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from ._errors import EtagMismatchError, InvalidJobError, JobConflictError, JobNotFoundError, StoreUnavailableError

try:
    from opentelemetry import metrics, trace

    INSTALLED = True
except ImportError:
    INSTALLED = False

_OUTCOMES = (
    (JobConflictError, "conflict"),
    (JobNotFoundError, "not_found"),
    (EtagMismatchError, "etag_mismatch"),
    (InvalidJobError, "invalid"),
    (StoreUnavailableError, "unavailable"),
    (Exception, "error"),
    (BaseException, "cancelled"),
)
_EXPECTED = (JobConflictError, JobNotFoundError, EtagMismatchError, asyncio.CancelledError)
"""Answers of the store and the caller's own cancel, no faults: their spans are no errors."""
_BOUNDARIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ID_CHARACTERS = 256

if INSTALLED:
    _tracer = trace.get_tracer("jobwire.jobstore")
    _meter = metrics.get_meter("jobwire.jobstore")
    _operations = _meter.create_counter(
        "jobwire.operations", unit="{operation}", description="Verbs called, by `verb` and `outcome`"
    )
    _duration = _meter.create_histogram(
        "jobwire.operation.duration",
        unit="s",
        description="How long a verb took, by `verb`",
        explicit_bucket_boundaries_advisory=_BOUNDARIES,
    )


@contextlib.contextmanager
def observed(verb: str, *, system: str, agent: str, job_id: str) -> Iterator[None]:
    """Around one call of a verb. Ids are told, payloads never."""
    if not INSTALLED:
        yield
        return
    attributes = {"db.system": system, "job.agent": agent, "job.namespace": agent}
    if isinstance(job_id, str) and job_id:
        # It has not been checked yet: what no exporter could encode would take other spans along.
        attributes["job.id"] = job_id[:_ID_CHARACTERS].encode(errors="replace").decode()
    outcome = "ok"
    began = time.perf_counter()
    # What is raised is recorded below: an expected answer is no error of the span.
    with _tracer.start_as_current_span(
        f"jobwire.{verb}",
        kind=trace.SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            outcome = next(name for kind, name in _OUTCOMES if isinstance(error, kind))
            if not isinstance(error, _EXPECTED):
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.set_attribute("jobwire.outcome", outcome)
            _operations.add(1, {"verb": verb, "outcome": outcome})
            _duration.record(time.perf_counter() - began, {"verb": verb})
