from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import READY, RUNNING, complete, heartbeat, ms, release, seconds

from .bench import Bench, refusal

HELD, LOST = store_pb2.LEASE_STATE_HELD, store_pb2.LEASE_STATE_LOST


async def test_extends_by_the_leases_duration_from_now(bench: Bench) -> None:
    await bench.add("a", "q", lease=10)
    claimed = await bench.take("q")
    before = await bench.job("a")
    bench.clock.advance(6)
    [result] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert (result.state, ms(result.lease_expire_time)) == (HELD, bench.clock.now_ms + 10_000)
    job = await bench.job("a")
    assert ms(job.heartbeat_time) == bench.clock.now_ms
    assert ms(job.lease_expire_time) == bench.clock.now_ms + 10_000
    assert (job.version, job.etag, job.update_time) == (before.version, before.etag, before.update_time)


async def test_a_lease_kept_up_is_never_reclaimed(bench: Bench) -> None:
    await bench.add("a", "q", lease=3)
    claimed = await bench.take("q")
    for _ in range(20):
        bench.clock.advance(2.999)
        await bench.sweep()
        [result] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
        assert result.state == HELD
    job = await bench.job("a")
    assert (job.status, job.attempt, job.losses) == (RUNNING, 1, 0)


async def test_progress_makes_a_version_but_no_etag(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    progress = job_pb2.Progress(fraction=0.25, note="a quarter")
    bench.clock.advance(1)
    await bench.verbs.heartbeat(heartbeat(claimed, progress=progress))
    job = await bench.job("a")
    assert (job.progress, job.version, job.etag) == (progress, claimed.job.version + 1, claimed.job.etag)
    # Whoever repeats it after a lost answer, caller or store, has no more to tell.
    await bench.verbs.heartbeat(heartbeat(claimed, progress=progress))
    assert (await bench.job("a")).version == job.version
    assert ms(job.update_time) == bench.clock.now_ms
    await bench.verbs.heartbeat(heartbeat(claimed))
    assert (await bench.job("a")).progress == progress
    await bench.verbs.heartbeat(heartbeat(claimed, progress=job_pb2.Progress()))
    assert (await bench.job("a")).progress == job_pb2.Progress()


async def test_one_result_per_lease_held_or_lost(bench: Bench) -> None:
    for index in range(4):
        await bench.add(f"j{index}", "q")
    held, released, deleted, lost = await bench.claim("q", max_jobs=4)
    await bench.verbs.release(release(released))
    await bench.verbs.delete(store_pb2.DeleteRequest(id=deleted.job.id))
    await bench.lose(lost.job.id)
    made_up = store_pb2.ClaimedJob(job=held.job, lease_token="made-up")
    request = heartbeat(released, held, deleted, made_up, lost, held)
    results = (await bench.verbs.heartbeat(request)).results
    assert [result.state for result in results] == [LOST, HELD, LOST, LOST, LOST, HELD]
    assert [result.HasField("lease_expire_time") for result in results] == [False, True, False, False, False, True]


async def test_a_stale_token_changes_nothing(bench: Bench) -> None:
    await bench.add("a", "q")
    stale = await bench.take("q")
    await bench.verbs.release(release(stale))
    before = await bench.job("a")
    bench.clock.advance(1)
    await bench.verbs.heartbeat(heartbeat(stale, progress=job_pb2.Progress(fraction=1)))
    assert await bench.job("a") == before
    assert before.wait_reason == READY


async def test_late_but_not_reclaimed_is_in_time(bench: Bench) -> None:
    bench.needs("own sweeps")
    await bench.add("a", "q", lease=5)
    claimed = await bench.take("q")
    bench.clock.advance(60)
    [result] = (await bench.verbs.heartbeat(heartbeat(claimed))).results
    assert result.state == HELD
    await bench.sweep()
    assert not (await bench.verbs.complete(complete(claimed))).repeated_call


async def test_limits(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    nan = heartbeat(claimed, progress=job_pb2.Progress(fraction=float("nan")))
    note = heartbeat(claimed, progress=job_pb2.Progress(note="x" * 1_025))
    tokenless = heartbeat(store_pb2.ClaimedJob(job=claimed.job))
    beyond = {
        "leases": store_pb2.HeartbeatRequest(),
        "leases[0].progress.fraction": nan,
        "leases[0].progress.note": note,
        "leases[0].lease.token": tokenless,
        "leases[0].lease.id": heartbeat(store_pb2.ClaimedJob(lease_token="t")),
    }
    for field, request in beyond.items():
        assert list((await refusal(bench.verbs.heartbeat(request))).fields) == [field]
    too_many = heartbeat(*[claimed] * 1_001)
    assert list((await refusal(bench.verbs.heartbeat(too_many))).fields) == ["leases"]
    assert len((await bench.verbs.heartbeat(heartbeat(*[claimed] * 1_000))).results) == 1_000
    assert seconds(30) == claimed.lease_duration
