"""No rule holds on one backend and not on another."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.clock import Clock
from tests.conformance import conftest as conformance
from tests.conformance.backends import EngineBackend, MemoryBackend
from tests.conformance.test_backends_agree import STEPS, Step, compare
from tests.engines import ENGINE, Engine

from . import conftest, fleet
from .scale import scaled


def _params(fixture: object) -> list[object]:
    """What a fixture is parametrized over."""
    definition = getattr(fixture, "_fixture_function_marker", None) or getattr(fixture, "_pytestfixturefunction", None)
    assert definition is not None
    return list(definition.params)


def test_a23_every_scenario_runs_on_every_backend() -> None:
    """Lost leases were taken back by one of a library's brokers and never by its cluster one, as only one subclass had
    the feature (taskiq-redis #130). Sentinel and Cluster join when the store speaks to them; until then their URLs are
    refused when a server starts.
    """
    both = {"memory", ENGINE}
    assert conftest.backend is conformance.backend
    assert conftest.bench is conformance.bench
    assert _params(conformance.backend) == [(sort, partitions) for sort in ("memory", ENGINE) for partitions in (1, 16)]
    assert _params(conformance.bench) == ["store", "grpc"]
    assert {sort for sort, _, _ in fleet.FLEETS} == both
    assert {over_grpc for _, _, over_grpc in fleet.FLEETS} == {False, True}


def test_a23_what_a_backend_lacks_is_listed(engine: Engine) -> None:
    """The same report (taskiq-redis #130): a difference between backends is one that says so. There is one, and it is
    no rule: memory has no engine to look into.
    """
    assert set(MemoryBackend(Clock(), 1).lacks) == {"engine"}
    assert set(EngineBackend(Clock(), 1, engine).lacks) <= {"engine"}


@pytest.mark.timeout(300)
@settings(max_examples=scaled(8), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@seed(23)
@given(steps=st.lists(STEPS, min_size=100, max_size=200), partitions=st.sampled_from([1, 16]))
def test_a23_a_random_history_is_answered_the_same(engine: Engine, steps: list[Step], partitions: int) -> None:
    """The same report (taskiq-redis #130), for whatever nobody thought of: longer histories than those of
    `tests/conformance/test_backends_agree.py`, the same ones every time.
    """
    asyncio.run(compare(engine, steps, partitions))
