from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import create

from .bench import Bench, refusal


def batch(*requests: store_pb2.CreateRequest) -> store_pb2.BatchCreateRequest:
    return store_pb2.BatchCreateRequest(requests=requests)


async def test_one_result_per_item_in_order_good_and_bad(bench: Bench) -> None:
    await bench.add("taken", "q")
    answer = await bench.verbs.batch_create(
        batch(
            create("a", "q"),
            create("taken", "q"),
            create("bad\n", "q"),
            create("p/x", "q", parent_id="p"),
            create("live", "q", ttl=0),
            create("b", "q"),
        )
    )
    reasons = [item.error.reason if item.HasField("error") else item.response.job.id for item in answer.results]
    assert reasons == [
        "a",
        job_pb2.ERROR_REASON_JOB_EXISTS,
        job_pb2.ERROR_REASON_FIELD_INVALID,
        job_pb2.ERROR_REASON_PARENT_NOT_FOUND,
        job_pb2.ERROR_REASON_FIELD_INVALID,
        "b",
    ]
    exists, field = answer.results[1].error, answer.results[4].error
    assert (exists.code, dict(exists.metadata)) == (6, {"id": "taken"})
    assert (field.code, field.field) == (3, "job.ttl")
    assert field.message
    assert set(await bench.claim_ids("q", max_jobs=9)) == {"taken", "a", "b"}


async def test_items_are_as_if_sent_one_after_the_other(bench: Bench) -> None:
    parent, other = bench.ids("p", 2)
    answer = await bench.verbs.batch_create(
        batch(
            create(parent, "q"),
            create(parent, "q"),
            create(f"{parent}/a", "q", parent_id=parent),
            create(f"{parent}/b", "q", parent_id=parent, key="k"),
            create(f"{parent}/c", "q", parent_id=parent, key="k"),
            create(other, "q", request_id="r"),
            create(other, "q", request_id="r"),
        )
    )
    assert [item.HasField("response") for item in answer.results] == [True, False, True, True, True, True, True]
    repeat = answer.results[4].response
    assert (repeat.created, repeat.job.id) == (False, f"{parent}/b")
    assert answer.results[6].response == answer.results[5].response
    assert await bench.claim_ids("q", max_jobs=9) == [parent, f"{parent}/a", f"{parent}/b", other]


async def test_one_dedup_key_twice_makes_one_job(bench: Bench) -> None:
    answer = await bench.verbs.batch_create(batch(*(create(queue="q", key="k") for _ in range(5))))
    assert [item.response.created for item in answer.results] == [True, False, False, False, False]
    assert len({item.response.job.id for item in answer.results}) == 1


async def test_a_thousand_at_once(bench: Bench) -> None:
    answer = await bench.verbs.batch_create(batch(*(create(f"j{i}", "q") for i in range(1_000))))
    assert [item.response.job.id for item in answer.results] == [f"j{i}" for i in range(1_000)]
    claimed = await bench.claim_ids("q", max_jobs=1_000)
    assert len(set(claimed)) == 1_000


async def test_size_is_limited(bench: Bench) -> None:
    for size in (0, 1_001):
        error = await refusal(bench.verbs.batch_create(batch(*(create(queue="q") for _ in range(size)))))
        assert list(error.fields) == ["requests"]


async def test_an_answer_too_large_for_a_message_keeps_the_names(bench: Bench) -> None:
    """Every item is answered as it went, though the jobs together would not fit."""
    labels = {f"{'k' * 60}{number}": "v" * 256 for number in range(32)}
    await bench.add("", "q", key="k", labels=labels)
    repeated, new = create("", "q", key="k"), create("", "r")
    answer = await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=[repeated] * 600 + [new]))
    responses = [result.response for result in answer.results]
    assert len(responses) == 601
    assert [response.created for response in responses] == [False] * 600 + [True]
    assert len({response.job.id for response in responses}) == 2
    assert responses[0].job.labels == labels
    assert responses[599].job == job_pb2.Job(namespace="default", id=responses[0].job.id)
    assert await bench.exists(responses[600].job.id)
