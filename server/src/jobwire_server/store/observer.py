"""What a store tells whoever measures it. The store itself knows nothing of meters."""

from __future__ import annotations

from .types import Sweep


class Observer:
    """Does nothing; to be overridden. Called on hot paths, so a method must be quick, and must not raise."""

    def round_trip(self, seconds: float) -> None:
        """A pipeline went to the engine and came back, with answers or errors."""

    def claimed(self, waited_ms: int) -> None:
        """A claim took jobs; the one that had been ready for longest had waited so long."""

    def swept(self, sweep: Sweep) -> None:
        """A slice of a sweep is done."""

    def reclaimed(self, leases: int) -> None:
        """An operator's ReclaimStale took leases."""
