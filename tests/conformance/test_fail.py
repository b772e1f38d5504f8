from __future__ import annotations

import itertools

import pytest
from jobwire.v1 import job_pb2, store_pb2

from tests.requests import BACKOFF, FAILED, PENDING, READY, complete, fail, ms, release

from .bench import Bench, refusal


async def test_a_failed_attempt_is_tried_again_at_once(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    bench.clock.advance(1)
    answer = await bench.verbs.fail(fail(claimed, "m", code="C", type="T", stack="S", retryable=True))
    assert answer == store_pb2.FailResponse(status=PENDING, durability=store_pb2.DURABILITY_ENGINE)
    job = await bench.job("a")
    assert (job.status, job.wait_reason, job.failures, job.losses) == (PENDING, READY, 1, 0)
    assert job.error == job_pb2.JobError(code="C", message="m", type="T", stack="S", retryable=True)
    assert job.version == claimed.job.version + 1
    assert job.etag != claimed.job.etag
    assert [attempt.outcome for attempt in job.attempts] == [job_pb2.ATTEMPT_OUTCOME_FAILED]
    assert (await bench.take("q")).job.attempt == 2


async def test_a_delay_is_kept_to_the_millisecond(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), delay=10))
    job = await bench.job("a")
    assert (job.status, job.wait_reason, ms(job.run_time)) == (PENDING, BACKOFF, bench.clock.now_ms + 10_000)
    bench.clock.advance(10, ms=-1)
    await bench.sweep()
    assert await bench.claim("q") == []
    bench.clock.advance(ms=1)
    await bench.sweep()
    assert await bench.claim_ids("q") == ["a"]


async def test_attempts_used_up_end_the_job_with_the_last_error(bench: Bench) -> None:
    await bench.add("a", "q", max_attempts=3, ttl=60)
    for index in range(3):
        answer = await bench.verbs.fail(fail(await bench.take("q"), f"error {index}", delay=0))
        assert answer.status == (FAILED if index == 2 else PENDING)
    job = await bench.job("a")
    assert (job.status, job.failures, job.error.message) == (FAILED, 3, "error 2")
    assert ms(job.finish_time) == bench.clock.now_ms
    assert ms(job.expire_time) == bench.clock.now_ms + 60_000
    assert await bench.claim("q") == []


async def test_not_retryable_ends_the_job_at_once(bench: Bench) -> None:
    await bench.add("a", "q", max_attempts=100)
    answer = await bench.verbs.fail(fail(await bench.take("q"), "hopeless", retryable=False, delay=5))
    assert answer.status == FAILED
    job = await bench.job("a")
    assert (job.status, job.failures, job.error.message) == (FAILED, 1, "hopeless")
    assert not job.HasField("run_time")


@pytest.mark.parametrize("losses", range(6))
async def test_failures_and_losses_together_use_up_the_attempts(bench: Bench, losses: int) -> None:
    orders = set(itertools.permutations("L" * losses + "F" * (5 - losses)))
    for number, order in enumerate(sorted(orders)):
        await bench.add(f"j{number}", "q", max_attempts=5, lease=1)
        for attempt, end in enumerate(order, 1):
            released = await bench.take("q")  # a release in between costs nothing
            await bench.verbs.release(release(released))
            claimed = await bench.take("q")
            if end == "F":
                await bench.verbs.fail(fail(claimed, "failed"))
            else:
                bench.clock.advance(1)
                await bench.sweep()
            job = await bench.job(f"j{number}")
            assert job.status == (FAILED if attempt == 5 else PENDING)
        assert (job.losses, job.failures, job.attempt) == (losses, 5 - losses, 10)
        assert job.error.code == ("LEASE_EXPIRED" if order[-1] == "L" else "")
        assert await bench.claim("q") == []


async def test_a_repeat_is_ok_and_says_the_status_as_it_is_now(bench: Bench) -> None:
    await bench.add("a", "q")
    first = await bench.take("q")
    await bench.verbs.fail(fail(first, "first"))
    second = await bench.take("q")
    again = await bench.verbs.fail(fail(first, "again"))
    assert (again.repeated_call, again.status) == (True, job_pb2.JOB_STATUS_RUNNING)
    await bench.verbs.complete(complete(second, b"done"))
    again = await bench.verbs.fail(fail(first, "again"))
    assert (again.repeated_call, again.status) == (True, job_pb2.JOB_STATUS_SUCCEEDED)
    job = await bench.job("a")
    assert (job.failures, job.result) == (1, b"done")
    assert (await refusal(bench.verbs.complete(complete(first)))).reason == job_pb2.ERROR_REASON_LEASE_LOST


async def test_only_the_last_eight_tokens_are_remembered(bench: Bench) -> None:
    await bench.add("a", "q", max_attempts=100)
    tokens = []
    for _ in range(9):
        claimed = await bench.take("q")
        await bench.verbs.fail(fail(claimed))
        tokens.append(claimed)
    assert (await refusal(bench.verbs.fail(fail(tokens[0])))).reason == job_pb2.ERROR_REASON_LEASE_LOST
    for claimed in tokens[1:]:
        assert (await bench.verbs.fail(fail(claimed))).repeated_call


async def test_a_lost_token_may_not_settle(bench: Bench) -> None:
    await bench.add("a", "q", lease=1)
    claimed = await bench.take("q")
    bench.clock.advance(1)
    await bench.sweep()
    for call in (bench.verbs.fail(fail(claimed)), bench.verbs.release(release(claimed))):
        assert (await refusal(call)).reason == job_pb2.ERROR_REASON_LEASE_LOST
    job = await bench.job("a")
    assert (job.failures, job.losses) == (0, 1)


async def test_error_texts_are_cut_the_stack_first(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), "ü" * 9_000, stack="s" * 100))
    error = (await bench.job("a")).error
    assert (error.message, error.stack) == ("ü" * 8_192, "")


async def test_an_attempt_without_an_error_clears_the_last_one(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), "first"))
    await bench.verbs.fail(fail(await bench.take("q")))
    assert not (await bench.job("a")).HasField("error")


async def test_limits(bench: Bench) -> None:
    await bench.add("a", "q")
    claimed = await bench.take("q")
    beyond = {
        "error.code": fail(claimed, code="x" * 129),
        "error.type": fail(claimed, type="a\nb"),
        "delay": fail(claimed, delay=-1),
        "lease.token": fail(store_pb2.ClaimedJob(job=claimed.job)),
    }
    for field, request in beyond.items():
        assert list((await refusal(bench.verbs.fail(request))).fields) == [field]
    error = await refusal(bench.verbs.fail(fail(claimed, delay=366 * 86_400 + 1)))
    assert list(error.fields) == ["delay"]
    assert (await bench.verbs.fail(fail(claimed, delay=366 * 86_400))).status == PENDING
