"""What this replica counts, through OpenTelemetry's API: nothing happens until somebody installs its SDK."""

from __future__ import annotations

from opentelemetry import metrics

from jobwire_server.store.observer import Observer
from jobwire_server.store.types import Sweep

meter = metrics.get_meter("jobwire")

BOUNDARIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Of every histogram, in seconds."""

repairs = meter.create_counter(
    "jobwire.repairs",
    unit="{entry}",
    description="Records, index entries and counters that a repair walk mended, by `sort`",
)

dedup_hits = meter.create_counter(
    "jobwire.dedup.hits", unit="{job}", description="Creates answered with a job that was there already"
)
leases_lost = meter.create_counter(
    "jobwire.leases.lost", unit="{lease}", description="Heartbeats answered that the lease is lost"
)
fenced_writes = meter.create_counter(
    "jobwire.fenced_writes", unit="{settlement}", description="Settlements refused because their lease is lost"
)
undelivered = meter.create_counter(
    "jobwire.undelivered", unit="{job}", description="Jobs claimed here that did not reach their client, given back"
)
_reclaims = meter.create_counter(
    "jobwire.reclaims", unit="{lease}", description="Leases that ran out and were taken back by this replica"
)
_claim_latency = meter.create_histogram(
    "jobwire.claim.latency",
    unit="s",
    description="From ready to claimed by the engine's clock; of each claim, the job that had waited longest",
    explicit_bucket_boundaries_advisory=BOUNDARIES,
)
_lateness = meter.create_histogram(
    "jobwire.delay.lateness",
    unit="s",
    description="From a job's time to its being ready by the engine's clock; of each sweep, the latest job",
    explicit_bucket_boundaries_advisory=BOUNDARIES,
)
_round_trip = meter.create_histogram(
    "jobwire.engine.round_trip",
    unit="s",
    description="How long a pipeline to the engine took",
    explicit_bucket_boundaries_advisory=BOUNDARIES,
)


class Measuring(Observer):
    """Counts what a store does. A claim, a sweep or a pipeline costs one value, however many jobs it is about."""

    def __init__(self) -> None:
        self.engine_ms = 0
        """The engine's clock at the latest sweep."""

    def round_trip(self, seconds: float) -> None:
        """As `Observer.round_trip`."""
        _round_trip.record(seconds)

    def claimed(self, waited_ms: int) -> None:
        """As `Observer.claimed`."""
        _claim_latency.record(waited_ms / 1_000)

    def swept(self, sweep: Sweep) -> None:
        """As `Observer.swept`."""
        self.engine_ms = sweep.now_ms
        if sweep.promoted:
            _lateness.record(sweep.late_ms / 1_000)
        if sweep.reclaimed:
            _reclaims.add(len(sweep.reclaimed))

    def reclaimed(self, leases: int) -> None:
        """As `Observer.reclaimed`."""
        if leases:
            _reclaims.add(leases)
