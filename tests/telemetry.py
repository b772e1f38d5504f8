"""What OpenTelemetry's SDK records in a test. Its API takes providers once per process, so they are set once and record
only while a test asks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

Labels: TypeAlias = frozenset[tuple[str, object]]


class _Spans(SpanProcessor):
    def __init__(self) -> None:
        self.recording = False
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if self.recording:
            self.ended.append(span)


class Recorded:
    """Spans that ended and values that were counted since the test began."""

    def __init__(self, spans: _Spans, reader: InMemoryMetricReader) -> None:
        self._spans = spans
        self._reader = reader
        self._values: dict[tuple[str, Labels], float] = {}

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those of a name, in the order in which they ended."""
        return [span for span in self._spans.ended if name in ("", span.name)]

    def values(self, name: str) -> dict[Labels, float]:
        """Of a counter: how much was added. Of a histogram: how many values. Of a gauge: the last value. By labels."""
        self._collect()
        return {labels: value for (metric, labels), value in self._values.items() if metric == name}

    def value(self, name: str, **labels: object) -> float:
        """The sum over all labels that include these."""
        wanted = labels.items()
        return sum(value for found, value in self.values(name).items() if wanted <= dict(found).items())

    @property
    def metrics(self) -> set[str]:
        """The names of everything counted."""
        self._collect()
        return {name for name, _ in self._values}

    def _collect(self) -> None:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points: Sequence[object] = metric.data.data_points
                    for point in points:
                        labels = frozenset((getattr(point, "attributes", None) or {}).items())
                        added = isinstance(point, HistogramDataPoint) or getattr(metric.data, "is_monotonic", False)
                        value = float(point.count if isinstance(point, HistogramDataPoint) else getattr(point, "value"))  # noqa: B009
                        before = self._values.get((metric.name, labels), 0.0) if added else 0.0
                        self._values[metric.name, labels] = before + value


@functools.cache
def _sdk() -> tuple[_Spans, InMemoryMetricReader]:
    delta: dict[type, AggregationTemporality] = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
    spans, reader = _Spans(), InMemoryMetricReader(preferred_temporality=delta)
    tracer_provider = TracerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(spans)
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader], shutdown_on_exit=False))
    return spans, reader


@contextmanager
def recording() -> Iterator[Recorded]:
    """Records for the extent of the context."""
    spans, reader = _sdk()
    reader.get_metrics_data()  # what earlier tests counted
    spans.ended.clear()
    spans.recording = True
    try:
        yield Recorded(spans, reader)
    finally:
        spans.recording = False
        spans.ended.clear()
