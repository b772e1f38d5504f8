"""Claim: exclusive, in order, within its limits. Sharing between tenants is in test_fairness.py."""

from __future__ import annotations

import asyncio

from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits
from jobwire_server.store.types import Wish

from tests.requests import READY, RUNNING, claim, create, heartbeat, lease_of, ms, release, seconds

from .bench import Bench, refusal


async def test_a_claimed_job_is_running_under_a_lease(bench: Bench) -> None:
    first = await bench.add("a", "q", payload=b"p")
    bench.clock.advance(5)
    claimed = await bench.take("q", worker_id="w1", lease=60)
    job = claimed.job
    now = bench.clock.now_ms
    assert (job.id, job.payload, job.status, job.worker_id) == ("a", b"p", RUNNING, "w1")
    assert (job.wait_reason, job.attempt, job.version) == (job_pb2.WAIT_REASON_UNSPECIFIED, 1, first.version + 1)
    assert job.etag != first.etag
    assert ms(job.start_time) == ms(job.heartbeat_time) == ms(job.update_time) == now
    assert ms(claimed.lease_expire_time) == ms(job.lease_expire_time) == now + 60_000
    assert claimed.lease_duration == seconds(60)
    assert len(claimed.lease_token) >= 16
    assert await bench.job("a") == job


async def test_lease_is_the_jobs_else_the_claimers_else_thirty_seconds(bench: Bench) -> None:
    first, second, third = bench.ids("j", 3)
    await bench.add(first, "q", lease=7)
    await bench.add(second, "q")
    await bench.add(third, "q")
    assert (await bench.take("q", lease=9)).lease_duration == seconds(7)
    assert (await bench.take("q", lease=9)).lease_duration == seconds(9)
    assert (await bench.take("q")).lease_duration == seconds(30)


async def test_first_in_first_out(bench: Bench) -> None:
    ids = bench.ids("j", 12)
    order = ids[6:] + ids[:6]
    for job_id in order:
        await bench.add(job_id, "q")
    assert [await bench.claim_ids("q") for _ in range(2)] == [[order[0]], [order[1]]]
    assert await bench.claim_ids("q", max_jobs=100) == order[2:]
    assert await bench.claim("q") == []


async def test_higher_priority_first(bench: Bench) -> None:
    ids = bench.ids("j", 6)
    for job_id, priority in zip(ids, (0, -100, 5, 100, 5, 10), strict=True):
        await bench.add(job_id, "q", priority=priority)
    assert await bench.claim_ids("q", max_jobs=9) == [ids[3], ids[5], ids[2], ids[4], ids[0], ids[1]]


async def test_queues_in_the_order_asked_and_no_other(bench: Bench) -> None:
    ids = bench.ids("j", 4)
    for job_id, queue in zip(ids, ("batch", "interactive", "batch", "other"), strict=True):
        await bench.add(job_id, queue, priority=50 if queue == "batch" else 0)
    assert await bench.claim_ids("interactive", "batch", max_jobs=2) == [ids[1], ids[0]]
    assert await bench.claim_ids("interactive") == []
    assert await bench.claim_ids("interactive", "batch", max_jobs=9) == [ids[2]]


async def test_queues_of_several_namespaces(bench: Bench) -> None:
    await bench.add("a", "q", namespace="n1")
    await bench.add("a", "q", namespace="n2")
    request = store_pb2.ClaimRequest(
        queues=[store_pb2.QueueRef(namespace="n2", queue="q"), store_pb2.QueueRef(queue="q")], max_jobs=9
    )
    assert [claimed.job.namespace for claimed in (await bench.verbs.claim(request)).jobs] == ["n2"]


async def test_odd_queue_names_never_meet(bench: Bench) -> None:
    names = ["a:b", "a", "b", "{a}", "a b", "a/b", "ä", "a\u0308", "*", "q{0}", "0", "ready", "{"]
    for index, queue in enumerate(names):
        await bench.add(f"{{j}}:{index} ü", queue, tenant=names[-index])
    for index, queue in enumerate(names):
        assert await bench.claim_ids(queue, max_jobs=9) == [f"{{j}}:{index} ü"]


async def test_eight_claimers_take_twenty_jobs_once_each(bench: Bench) -> None:
    for index in range(20):
        await bench.add(f"j{index}", "q")

    async def work() -> list[str]:
        taken: list[str] = []
        while found := await bench.claim_ids("q"):
            taken += found
        return taken

    taken = await asyncio.gather(*(work() for _ in range(8)))
    assert sorted(job_id for ids in taken for job_id in ids) == sorted(f"j{i}" for i in range(20))


async def test_tokens_are_random_and_never_come_again(bench: Bench) -> None:
    tokens = set()
    for index in range(5):
        await bench.add(f"j{index}", "q")
    for _ in range(3):
        for claimed in await bench.claim("q", max_jobs=9):
            tokens.add(claimed.lease_token)
            await bench.verbs.release(release(claimed))
    assert len(tokens) == 15


async def test_at_most_max_jobs(bench: Bench) -> None:
    for index in range(5):
        await bench.add(f"j{index}", "q")
    assert len(await bench.claim("q", max_jobs=0)) == 1
    assert len(await bench.claim("q", max_jobs=3)) == 3
    assert len(await bench.claim("q", max_jobs=3)) == 1


async def test_no_more_than_fit_one_message(bench: Bench) -> None:
    ids = bench.ids("j", 5)
    for job_id in ids:
        await bench.add(job_id, "q", payload=bytes(1_500_000))
    answers = [await bench.verbs.claim(claim("q", max_jobs=10)) for _ in range(3)]
    assert [len(answer.jobs) for answer in answers] == [2, 2, 1]
    assert all(answer.ByteSize() <= limits.MESSAGE_BYTES for answer in answers)
    assert [claimed.job.id for answer in answers for claimed in answer.jobs] == ids


async def test_attempt_counts_every_lease(bench: Bench) -> None:
    await bench.add("a", "q", max_attempts=1)
    for attempt in range(1, 12):
        claimed = await bench.take("q", worker_id=f"w{attempt}")
        assert claimed.job.attempt == attempt
        await bench.verbs.release(release(claimed))
        bench.clock.advance(1)
    job = await bench.job("a")
    assert [attempt.number for attempt in job.attempts] == list(range(4, 12))
    last = job.attempts[-1]
    assert (last.worker_id, last.outcome) == ("w11", job_pb2.ATTEMPT_OUTCOME_RELEASED)
    assert ms(last.start_time) == ms(last.finish_time) == bench.clock.now_ms - 1_000
    assert (job.failures, job.losses, job.worker_id, job.wait_reason) == (0, 0, "", READY)


async def test_limits(bench: Bench) -> None:
    many = [store_pb2.QueueRef(queue=f"q{i}") for i in range(33)]
    await bench.verbs.claim(store_pb2.ClaimRequest(queues=many[:32], max_jobs=1_000, worker_id="x" * 128))
    beyond = {
        "queues": [store_pb2.ClaimRequest(), store_pb2.ClaimRequest(queues=many)],
        "queues[0].queue": [claim(""), claim("x" * 129), claim("a\n")],
        "queues[1]": [claim("q", "q")],
        "max_jobs": [claim("q", max_jobs=1_001), claim("q", max_jobs=-1)],
        "worker_id": [claim("q", worker_id="x" * 129)],
        "lease_duration": [claim("q", lease=0.4), claim("q", lease=3_601)],
        "wait": [claim("q", wait=seconds(61)), claim("q", wait=seconds(-1))],
    }
    for field, requests in beyond.items():
        for request in requests:
            error = await refusal(bench.verbs.claim(request))
            assert list(error.fields) == [field]


async def test_a_repeat_under_the_same_token_answers_what_is_still_held(bench: Bench) -> None:
    bench.needs("inner verbs")
    for job_id in bench.ids("j", 4):
        await bench.add(job_id, "q")

    wish = Wish(
        queues=[("default", "q")],
        max_jobs=3,
        max_bytes=10**6,
        lease_ms=30_000,
        receipt_ms=0,
        worker_id="w",
        token="token",
        waiting=False,
    )

    async def again() -> list[store_pb2.ClaimedJob]:
        claimed = await bench.store._claim(0, wish)
        assert claimed.more
        return claimed.jobs

    first = await again()
    assert [claimed.lease_token for claimed in first] == ["token-0", "token-1", "token-2"]
    assert await again() == first
    await bench.verbs.release(release(first[1]))
    assert await again() == [first[0], first[2]]
    await bench.verbs.heartbeat(heartbeat(first[0]))
    assert [lease_of(claimed) for claimed in await again()] == [lease_of(first[0]), lease_of(first[2])]


async def test_more_says_whether_jobs_are_left(bench: Bench) -> None:
    bench.needs("inner verbs")
    for job_id in bench.ids("j", 2):
        await bench.verbs.create(create(job_id, "q"))
    request = claim("q", "r")
    assert (await bench.store.claim_from(0, request, 1, waiting=False)).more
    assert not (await bench.store.claim_from(0, request, 1, waiting=False)).more
    nothing = await bench.store.claim_from(0, request, 1, waiting=True)
    assert (nothing.jobs, nothing.more) == ([], False)


async def test_more_jobs_than_one_script_takes(bench: Bench) -> None:
    batch = store_pb2.BatchCreateRequest(requests=[create("", "q") for _ in range(600)])
    await bench.verbs.batch_create(batch)
    claimed = await bench.claim("q", max_jobs=599)
    assert len({job.job.id for job in claimed}) == len({job.lease_token for job in claimed}) == 599
    assert len(await bench.claim("q", max_jobs=10)) == 1


async def test_claims_side_by_side_each_look_at_every_partition(bench: Bench) -> None:
    queues = [f"q{number}" for number in range(40)]
    for queue in queues:
        await bench.add(queue, queue)
    found = await asyncio.gather(*(bench.claim_ids(queue) for queue in queues))
    assert found == [[queue] for queue in queues]
