"""Scenarios of the store's rules run where the conformance suite does."""

from tests.conformance.conftest import backend, bench

__all__ = ["backend", "bench"]
