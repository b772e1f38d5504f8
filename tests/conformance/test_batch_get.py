from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits

from .bench import Bench, refusal


async def test_one_result_per_id_in_order(bench: Bench) -> None:
    await bench.add("a", payload=b"p")
    await bench.add("b")
    request = store_pb2.BatchGetRequest(ids=["b", "never", "a", "b"], view=job_pb2.JOB_VIEW_FULL)
    answer = await bench.verbs.batch_get(request)
    assert [item.id for item in answer.results] == ["b", "never", "a", "b"]
    assert [item.HasField("job") for item in answer.results] == [True, False, True, True]
    assert answer.results[2].job.payload == b"p"
    basic = await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=["a"]))
    assert basic.results[0].job.payload == b""


async def test_what_does_not_fit_one_message_is_left_for_the_next_call(bench: Bench) -> None:
    ids = [f"j{i}" for i in range(5)]
    for job_id in ids:
        await bench.add(job_id, payload=bytes(1_500_000))
    left, calls = ids, 0
    while left:
        answer = await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=left, view=job_pb2.JOB_VIEW_FULL))
        assert answer.ByteSize() <= limits.MESSAGE_BYTES
        assert [item.id for item in answer.results] == left[: len(answer.results)]
        assert all(len(item.job.payload) == 1_500_000 for item in answer.results)
        left, calls = left[len(answer.results) :], calls + 1
    assert calls == 3
    basic = await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=ids))
    assert len(basic.results) == 5


async def test_vanished_and_expired_jobs_are_unset(bench: Bench) -> None:
    await bench.add("lost")
    await bench.add("old", ttl=1)
    await bench.lose("lost")
    bench.clock.advance(1)
    answer = await bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=["lost", "old"]))
    assert [item.HasField("job") for item in answer.results] == [False, False]


async def test_size_and_ids_are_checked(bench: Bench) -> None:
    for ids, field in (([], "ids"), (["a"] * 1_001, "ids"), (["a", ""], "ids[1]")):
        error = await refusal(bench.verbs.batch_get(store_pb2.BatchGetRequest(ids=ids)))
        assert list(error.fields) == [field]
