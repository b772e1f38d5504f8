"""A store tells who measures it: how long the claimed had waited, how late the delayed were, what it reclaimed."""

from __future__ import annotations

from jobwire.v1 import store_pb2
from jobwire_server.store.observer import Observer
from jobwire_server.store.types import Sweep

from tests.requests import claim, create, fail, release

from .bench import Bench


class Seen(Observer):
    """What was told."""

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.late: list[int] = []
        self.reclaims = 0

    def claimed(self, waited_ms: int) -> None:
        self.waits.append(waited_ms)

    def swept(self, sweep: Sweep) -> None:
        if sweep.promoted:
            self.late.append(sweep.late_ms)
        self.reclaims += len(sweep.reclaimed)

    def reclaimed(self, leases: int) -> None:
        self.reclaims += leases


def watched(bench: Bench) -> Seen:
    """From now on."""
    bench.needs("own sweeps")
    seen = Seen()
    bench.store.observer = seen
    return seen


async def test_a_claim_tells_the_longest_wait(bench: Bench) -> None:
    seen = watched(bench)
    first, second, third = bench.ids("j", 3)
    await bench.add(first, "q", queue_timeout=30)
    bench.clock.advance(ms=1_250)
    await bench.add(second, "q", priority=5)
    bench.clock.advance(ms=40)
    assert await bench.claim("nothing") == []
    [claimed] = await bench.claim("q")  # the one with the higher priority
    assert claimed.job.id == second
    assert seen.waits == [40]
    await bench.add(third, "q", priority=5)
    assert len(await bench.claim("q", max_jobs=2)) == 2
    assert seen.waits == [40, 1_290]


async def test_a_wait_begins_when_a_job_is_ready_again(bench: Bench) -> None:
    seen = watched(bench)
    await bench.add("j", "q")
    bench.clock.advance(ms=10)
    first = await bench.take("q")
    bench.clock.advance(5)
    await bench.verbs.release(release(first))
    bench.clock.advance(ms=20)
    second = await bench.take("q")
    await bench.verbs.fail(fail(second, "no", delay=60, retryable=True))
    bench.clock.advance(60, ms=7)
    await bench.sweep()
    bench.clock.advance(ms=30)
    await bench.take("q")
    assert (seen.waits, seen.late) == ([10, 20, 30], [7])


async def test_a_hand_off_tells_the_wait_too(bench: Bench) -> None:
    seen = watched(bench)
    [first, second] = bench.ids("j", 2)
    await bench.add(first, "q")
    bench.clock.advance(ms=15)
    outcome, claimed = await bench.store.hand_off(create(second, "q"), claim("q"), 1)
    assert isinstance(outcome, store_pb2.CreateResponse)
    assert [job.job.id for job in claimed.jobs] == [first]
    assert (claimed.waited_ms, seen.waits) == (15, [15])


async def test_a_sweep_tells_the_latest_of_the_delayed(bench: Bench) -> None:
    seen = watched(bench)
    for job_id, delay in zip(bench.ids("j", 3), (1, 2, 9), strict=True):
        await bench.add(job_id, "q", delay=delay)
    bench.clock.advance(2, ms=5)
    await bench.sweep()
    assert seen.late == [1_005]
    bench.clock.advance(7)
    await bench.sweep()
    assert seen.late == [1_005, 5]


async def test_reclaims_are_told_once_whoever_does_them(bench: Bench) -> None:
    seen = watched(bench)
    for job_id in bench.ids("j", 2):
        await bench.add(job_id, "q")
    await bench.claim("q", lease=10)
    await bench.claim("q", lease=3_600)
    bench.clock.advance(11)
    await bench.sweep()
    assert seen.reclaims == 1
    bench.clock.advance(1)
    before = store_pb2.ReclaimStaleRequest()
    before.heartbeat_before.FromMilliseconds(bench.clock.now_ms)
    await bench.verbs.reclaim_stale(before)
    await bench.sweep()
    assert seen.reclaims == 2
