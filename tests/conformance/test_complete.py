from __future__ import annotations

import asyncio

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import SUCCEEDED, complete, fail, heartbeat, ms, release

from .bench import Bench, refusal


async def test_a_completed_job_has_succeeded(bench: Bench) -> None:
    await bench.add("a", "q", ttl=60)
    claimed = await bench.take("q", worker_id="w")
    bench.clock.advance(5)
    answer = await bench.verbs.complete(complete(claimed, b"result"))
    assert answer == store_pb2.CompleteResponse(durability=store_pb2.DURABILITY_ENGINE)
    job = await bench.job("a")
    assert (job.status, job.result, job.worker_id) == (SUCCEEDED, b"result", "")
    assert ms(job.finish_time) == ms(job.update_time) == bench.clock.now_ms
    assert ms(job.expire_time) == bench.clock.now_ms + 60_000
    assert not job.HasField("lease_expire_time")
    assert (job.version, job.failures, job.losses) == (claimed.job.version + 1, 0, 0)
    assert job.etag != claimed.job.etag
    [attempt] = job.attempts
    assert (attempt.number, attempt.worker_id, attempt.outcome) == (1, "w", job_pb2.ATTEMPT_OUTCOME_COMPLETED)
    assert ms(attempt.finish_time) - ms(attempt.start_time) == 5_000


async def test_the_last_error_is_cleared(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), "oops"))
    await bench.verbs.complete(complete(await bench.take("q")))
    job = await bench.job("a")
    assert not job.HasField("error")
    assert (job.failures, job.attempt) == (1, 2)


async def test_a_repeat_is_ok_and_the_first_content_stands(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    await bench.verbs.complete(complete(claimed, b"first"))
    before = await bench.job("a")
    bench.clock.advance(1)
    assert (await bench.verbs.complete(complete(claimed, b"second"))).repeated_call
    assert await bench.job("a") == before
    for other in (bench.verbs.fail(fail(claimed)), bench.verbs.release(release(claimed))):
        assert (await refusal(other)).reason == job_pb2.ERROR_REASON_LEASE_LOST
    assert await bench.job("a") == before


async def test_only_one_of_many_completions_is_accepted(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    answers = await asyncio.gather(*(bench.verbs.complete(complete(claimed, bytes([i]))) for i in range(10)))
    assert sum(not answer.repeated_call for answer in answers) == 1
    first = [answer.repeated_call for answer in answers].index(False)
    assert (await bench.job("a")).result == bytes([first])


async def test_a_stale_token_is_told_so_and_changes_nothing(bench: Bench) -> None:
    await bench.add("a", "q", lease=5)
    stale = await bench.take("q")
    bench.clock.advance(5)
    await bench.sweep()
    current = await bench.take("q")
    before = await bench.job("a")
    for token in (stale.lease_token, "made-up", current.lease_token + "x"):
        request = complete(store_pb2.ClaimedJob(job=current.job, lease_token=token), b"stale")
        error = await refusal(bench.verbs.complete(request))
        assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
        assert token not in error.message
    assert await bench.job("a") == before
    assert not (await bench.verbs.complete(complete(current, b"good"))).repeated_call
    error = await refusal(bench.verbs.complete(complete(stale)))
    assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
    assert (await bench.job("a")).result == b"good"


async def test_late_but_not_reclaimed_is_accepted(bench: Bench) -> None:
    bench.needs("own sweeps")
    await bench.add("a", "q", lease=5)
    claimed = await bench.take("q")
    bench.clock.advance(60)
    assert not (await bench.verbs.complete(complete(claimed))).repeated_call
    await bench.sweep()
    assert (await bench.job("a")).losses == 0


async def test_a_token_of_another_job_is_lost(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.add("b", "q")
    one, two = await bench.claim("q", max_jobs=2)
    crossed = complete(store_pb2.ClaimedJob(job=one.job, lease_token=two.lease_token))
    assert (await refusal(bench.verbs.complete(crossed))).reason == job_pb2.ERROR_REASON_LEASE_LOST


async def test_nothing_leaves_succeeded(bench: Bench) -> None:
    await bench.add("a", "q", ttl=60)
    claimed = await bench.take("q")
    await bench.verbs.complete(complete(claimed))
    before = await bench.job("a")
    await bench.verbs.cancel(store_pb2.CancelRequest(id="a"))
    await bench.verbs.heartbeat(heartbeat(claimed))
    bench.clock.advance(59)
    await bench.sweep()
    assert await bench.job("a") == before
    bench.clock.advance(1)
    error = await refusal(bench.verbs.complete(complete(claimed)))
    assert error.reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_limits(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    request = complete(claimed)
    request.durability.level = store_pb2.DURABILITY_FSYNC
    assert (await refusal(bench.verbs.complete(request))).reason == job_pb2.ERROR_REASON_NOT_SERVED
    for field, lease in (("lease.token", {"id": "a"}), ("lease.id", {"token": "t"})):
        error = await refusal(bench.verbs.complete(store_pb2.CompleteRequest(lease=store_pb2.LeaseRef(**lease))))
        assert list(error.fields) == [field]
