"""A server audits by itself, and says what it mended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from jobwire_server.dispatch import metrics, pace
from jobwire_server.dispatch.dispatch import Dispatch
from jobwire_server.store.redis import RedisStore
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from tests.engines import Engine
from tests.machine.damage import keys_of
from tests.requests import create
from tests.wait import wait_until


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """What a server of this test counts."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(metrics, "repairs", provider.get_meter("jobwire").create_counter("jobwire.repairs"))
    yield reader
    provider.shutdown()


def repairs(reader: InMemoryMetricReader) -> dict[str, float]:
    """By sort."""
    data = reader.get_metrics_data()
    found: dict[str, float] = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                assert metric.name == "jobwire.repairs"
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    found[str((point.attributes or {})["sort"])] = float(point.value)
    return found


async def test_a_server_mends_what_an_audit_finds_and_says_so(
    engine: Engine, counted: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "AUDIT_SECONDS", 0.1)
    await engine.flush()
    store = await RedisStore.connect(engine.url, partitions=2)
    for number in range(20):
        await store.create(create(f"j{number}", "q", delay=3_600))
    with structlog.testing.capture_logs() as lines:
        async with Dispatch(store).running(), engine.client() as client:
            # The first walks have been here: the next ones come of an audit.
            async def walked() -> bool:
                return len(await keys_of(client, ["walked"])) == 2

            await wait_until(walked)
            lost = await keys_of(client, ["due"])
            assert len(lost) == 2
            await client.delete(*lost)
            await wait_until(lambda: repairs(counted) == {"timer": 20})
            assert await keys_of(client, ["due"]) == lost
    await store.close()
    mended = [line for line in lines if line["event"] == "counters and indexes differed: mended"]
    assert sorted(line["partition"] for line in mended) == [0, 1]
    assert sum(line["timer"] for line in mended) == 20
    assert {line["log_level"] for line in mended} == {"warning"}
