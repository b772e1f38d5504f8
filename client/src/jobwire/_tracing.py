"""Trace context in jobs and a span per attempt, by OpenTelemetry's API where that is installed (`jobwire[otel]`)."""

from __future__ import annotations

import contextlib

from jobwire.v1 import job_pb2

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    INSTALLED = True
except ImportError:
    INSTALLED = False

_TRACESTATE_BYTES = 512

if INSTALLED:
    _tracer = trace.get_tracer("jobwire")
    # W3C, as the contract says, whatever else the process propagates in its headers.
    _propagator = TraceContextTextMapPropagator()


def current() -> job_pb2.TraceContext | None:
    """The caller's trace context; None outside of a span."""
    if not INSTALLED or not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    state = carrier.get("tracestate", "")
    if len(state.encode()) > _TRACESTATE_BYTES:
        state = ""  # W3C lets it go; a job must not be refused for its sake
    return job_pb2.TraceContext(traceparent=carrier["traceparent"], tracestate=state)


class AttemptSpan:
    """The span of one attempt, from its handler's start to its settlement. Does nothing unless begun."""

    def __init__(self, job: job_pb2.Job) -> None:
        self._job = job
        self._span: trace.Span | None = None
        self._outcome = "lost"
        self._problem = ""

    def begin(self) -> contextlib.AbstractContextManager[object]:
        """Begins, and holds the handler inside. It begins a trace of its own: the submitter's is linked, since it may
        be long over, and have many attempts.
        """
        if not INSTALLED:
            return contextlib.nullcontext()
        job = self._job
        self._span = _tracer.start_span(
            "jobwire.run",
            Context(),
            trace.SpanKind.CONSUMER,
            attributes={
                "job.id": job.id,
                "job.namespace": job.namespace,
                "job.queue": job.queue,
                "job.kind": job.kind,
                "job.attempt": job.attempt,
            },
            links=_links(job.trace_context),
        )
        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def raised(self, error: BaseException) -> None:
        """The handler failed."""
        if self._span is not None and self._span.is_recording():
            # An application's exception may fail to tell what it says.
            with contextlib.suppress(Exception):
                self._span.record_exception(error)

    def settled(self, verb: str, problem: str = "") -> None:
        """The server took the settlement. `problem`: the code of a failure."""
        self._outcome, self._problem = verb, problem

    def end(self) -> None:
        """Ends, as failed unless the job was completed or given back. An attempt that never settled lost its lease."""
        if self._span is None:
            return
        self._span.set_attribute("jobwire.outcome", self._outcome)
        if self._outcome in ("fail", "lost"):
            self._span.set_status(trace.StatusCode.ERROR, self._problem or "the lease was lost")
        self._span.end()


def _links(submitter: job_pb2.TraceContext) -> list[trace.Link]:
    if not submitter.traceparent:
        return []
    carrier = {"traceparent": submitter.traceparent, "tracestate": submitter.tracestate}
    span = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return [trace.Link(span)] if span.is_valid else []  # others may write anything there
