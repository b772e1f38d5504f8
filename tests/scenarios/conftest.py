"""Scenarios of the store's rules run where the conformance suite does; races on a fleet of replicas."""

from tests.conformance.conftest import backend, bench

from .fleet import fleet

__all__ = ["backend", "bench", "fleet"]
