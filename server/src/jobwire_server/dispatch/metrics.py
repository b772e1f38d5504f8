"""What this replica counts, through OpenTelemetry's API: nothing happens until somebody installs its SDK."""

from __future__ import annotations

from opentelemetry import metrics

meter = metrics.get_meter("jobwire")

BOUNDARIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Of every histogram, in seconds."""

repairs = meter.create_counter(
    "jobwire.repairs",
    unit="{entry}",
    description="Records, index entries and counters that a repair walk mended, by `sort`",
)
