"""What this replica counts, through OpenTelemetry's API: nothing happens until somebody installs its SDK."""

from __future__ import annotations

from opentelemetry import metrics

_meter = metrics.get_meter("jobwire")

repairs = _meter.create_counter(
    "jobwire.repairs",
    unit="{entry}",
    description="Records, index entries and counters that a repair walk mended, by `sort`",
)
