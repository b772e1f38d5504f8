from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import FAILED, PENDING, SUCCEEDED, complete, create, fail, release

from .bench import Bench, refusal


async def test_one_result_per_settlement_in_order(bench: Bench) -> None:
    for index in range(6):
        await bench.add(f"j{index}", "q", max_attempts=1 if index == 2 else 5)
    claimed = {job.job.id: job for job in await bench.claim("q", max_jobs=6)}
    made_up = store_pb2.ClaimedJob(job=claimed["j4"].job, lease_token="made-up")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="j5"))
    settlements = [
        store_pb2.Settlement(complete=complete(claimed["j0"], b"r")),
        store_pb2.Settlement(fail=fail(claimed["j1"], "m")),
        store_pb2.Settlement(fail=fail(claimed["j2"])),
        store_pb2.Settlement(release=release(claimed["j3"])),
        store_pb2.Settlement(complete=complete(made_up)),
        store_pb2.Settlement(complete=complete(claimed["j5"])),
        store_pb2.Settlement(complete=complete(claimed["j4"], bytes(1_900_001))),
        store_pb2.Settlement(),
        store_pb2.Settlement(complete=complete(claimed["j0"], b"again")),
        store_pb2.Settlement(release=release(claimed["j0"])),
    ]
    results = (await bench.verbs.batch_settle(store_pb2.BatchSettleRequest(settlements=settlements))).results
    engine = store_pb2.DURABILITY_ENGINE
    assert results[0].complete == store_pb2.CompleteResponse(durability=engine)
    assert results[1].fail == store_pb2.FailResponse(status=PENDING, durability=engine)
    assert results[2].fail == store_pb2.FailResponse(status=FAILED, durability=engine)
    assert results[3].release == store_pb2.ReleaseResponse(durability=engine)
    assert results[8].complete.repeated_call
    reasons = [result.error.reason for result in results]
    assert reasons[4:] == [
        job_pb2.ERROR_REASON_LEASE_LOST,
        job_pb2.ERROR_REASON_JOB_NOT_FOUND,
        job_pb2.ERROR_REASON_FIELD_INVALID,
        job_pb2.ERROR_REASON_FIELD_INVALID,
        job_pb2.ERROR_REASON_UNSPECIFIED,
        job_pb2.ERROR_REASON_LEASE_LOST,
    ]
    assert [result.error.field for result in results[6:8]] == ["result", "verb"]
    assert [result.error.code for result in results[4:8]] == [9, 5, 3, 3]
    assert [(await bench.job(f"j{i}")).status for i in range(4)] == [SUCCEEDED, PENDING, FAILED, PENDING]


async def test_a_thousand_at_once(bench: Bench) -> None:
    items = [create(f"j{i}", "q") for i in range(1_000)]
    await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=items))
    claimed: list[store_pb2.ClaimedJob] = []
    while found := await bench.claim("q", max_jobs=1_000):
        claimed += found
    settlements = [store_pb2.Settlement(complete=complete(job)) for job in claimed]
    request = store_pb2.BatchSettleRequest(settlements=settlements)
    results = (await bench.verbs.batch_settle(request)).results
    assert len(results) == 1_000
    assert all(result.HasField("complete") and not result.complete.repeated_call for result in results)
    again = (await bench.verbs.batch_settle(request)).results
    assert all(result.complete.repeated_call for result in again)


async def test_size_is_limited(bench: Bench) -> None:
    for size in (0, 1_001):
        request = store_pb2.BatchSettleRequest(settlements=[store_pb2.Settlement()] * size)
        assert list((await refusal(bench.verbs.batch_settle(request))).fields) == ["settlements"]
