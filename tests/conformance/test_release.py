from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import BACKOFF, PENDING, READY, complete, fail, ms, release

from .bench import Bench, refusal


async def test_gives_the_job_back_untouched(bench: Bench) -> None:
    await bench.add("a", "q", max_attempts=1, payload=b"p")
    claimed = await bench.take("q")
    answer = await bench.verbs.release(release(claimed))
    assert answer == store_pb2.ReleaseResponse(durability=store_pb2.DURABILITY_ENGINE)
    job = await bench.job("a")
    assert (job.status, job.wait_reason, job.payload) == (PENDING, READY, b"p")
    assert (job.attempt, job.failures, job.losses) == (1, 0, 0)
    assert not job.HasField("error")
    assert [attempt.outcome for attempt in job.attempts] == [job_pb2.ATTEMPT_OUTCOME_RELEASED]
    assert (await bench.take("q")).job.attempt == 2


async def test_with_a_delay_it_waits(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.release(release(await bench.take("q"), delay=10))
    job = await bench.job("a")
    assert (job.wait_reason, ms(job.run_time)) == (BACKOFF, bench.clock.now_ms + 10_000)
    assert await bench.claim("q") == []
    bench.clock.advance(10)
    await bench.sweep()
    assert (await bench.take("q")).job.failures == 0


async def test_the_queue_timeout_starts_anew(bench: Bench) -> None:
    await bench.add("a", "q", queue_timeout=10)
    bench.clock.advance(9)
    claimed = await bench.take("q")
    bench.clock.advance(5)
    await bench.verbs.release(release(claimed))
    bench.clock.advance(10, ms=-1)
    await bench.sweep()
    assert (await bench.job("a")).status == PENDING
    bench.clock.advance(ms=1)
    await bench.sweep()
    assert (await bench.job("a")).status == job_pb2.JOB_STATUS_FAILED


async def test_the_last_error_stays(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), "oops"))
    await bench.verbs.release(release(await bench.take("q")))
    assert (await bench.job("a")).error.message == "oops"


async def test_a_repeat_is_ok_also_after_a_later_attempt_began(bench: Bench) -> None:
    await bench.add("a", "q")
    first = await bench.take("q")
    await bench.verbs.release(release(first))
    second = await bench.take("q")
    before = await bench.job("a")
    assert (await bench.verbs.release(release(first, delay=60))).repeated_call
    assert await bench.job("a") == before
    for other in (bench.verbs.complete(complete(first)), bench.verbs.fail(fail(first))):
        assert (await refusal(other)).reason == job_pb2.ERROR_REASON_LEASE_LOST
    assert not (await bench.verbs.complete(complete(second))).repeated_call
    assert (await bench.verbs.release(release(first))).repeated_call


async def test_limits(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    for delay in (-1, 366 * 86_400 + 1):
        assert list((await refusal(bench.verbs.release(release(claimed, delay=delay)))).fields) == ["delay"]
    assert not (await bench.verbs.release(release(claimed, delay=0))).repeated_call
