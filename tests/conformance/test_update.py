"""Update by etag, request id and presence of fields; what each sort of job allows is in test_update_rules.py."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits

from tests.requests import complete, ms, update

from .bench import Bench, refusal


async def test_a_change_makes_a_new_version_and_etag(bench: Bench) -> None:
    first = await bench.add("a")
    bench.clock.advance(1)
    job = (await bench.verbs.update(update("a", labels={"x": "1"}))).job
    assert job.version == 2
    assert job.etag != first.etag
    assert ms(job.update_time) == bench.clock.now_ms == ms(job.create_time) + 1_000
    assert dict(job.labels) == {"x": "1"}


async def test_nothing_given_changes_nothing(bench: Bench) -> None:
    first = await bench.add("a")
    bench.clock.advance(1)
    assert (await bench.verbs.update(update("a"))).job == first
    assert (await bench.verbs.update(store_pb2.UpdateRequest(id="a", etag=first.etag, request_id="r"))).job == first


async def test_fields_not_given_stay(bench: Bench) -> None:
    await bench.add("a", labels={"x": "1"}, payload=b"p", content_type="t")
    await bench.verbs.update(update("a", result=b"r"))
    await bench.verbs.update(update("a", error=job_pb2.JobError(message="m")))
    job = await bench.job("a")
    assert (dict(job.labels), job.payload, job.content_type, job.result) == ({"x": "1"}, b"p", "t", b"r")
    assert job.error.message == "m"


async def test_fields_can_be_given_as_empty(bench: Bench) -> None:
    await bench.add("a", labels={"x": "1"}, payload=b"p", content_type="t")
    await bench.verbs.update(update("a", result=b"r", error=job_pb2.JobError(code="c")))
    await bench.verbs.update(update("a", labels={}, payload=b"", content_type="", result=b"", error=job_pb2.JobError()))
    job = await bench.job("a")
    assert (dict(job.labels), job.payload, job.content_type, job.result) == ({}, b"", "", b"")
    assert not job.HasField("error")


async def test_etag_guards(bench: Bench) -> None:
    first = await bench.add("a")
    request = update("a", labels={"x": "1"}, etag=first.etag)
    second = (await bench.verbs.update(request)).job
    error = await refusal(bench.verbs.update(request))
    assert error.reason == job_pb2.ERROR_REASON_ETAG_MISMATCH
    assert error.metadata == {"etag": second.etag}
    assert second.etag in error.message
    assert (await bench.job("a")).version == 2


async def test_request_id_makes_a_repeat_harmless(bench: Bench) -> None:
    first = await bench.add("a")
    request = update("a", labels={"x": "1"}, etag=first.etag, request_id="r1")
    second = (await bench.verbs.update(request)).job
    assert (await bench.verbs.update(request)).job == second
    await bench.verbs.update(update("a", labels={"x": "2"}, request_id="r2"))
    assert (await refusal(bench.verbs.update(request))).reason == job_pb2.ERROR_REASON_ETAG_MISMATCH


async def test_progress_alone_keeps_the_etag(bench: Bench) -> None:
    first = await bench.add("a")
    progress = job_pb2.Progress(fraction=0.5, note="half")
    job = (await bench.verbs.update(update("a", progress=progress))).job
    assert (job.progress, job.version, job.etag) == (progress, 2, first.etag)
    both = (await bench.verbs.update(update("a", progress=job_pb2.Progress(fraction=1), labels={}))).job
    assert both.version == 3
    assert both.etag != first.etag


async def test_etag_changes_with_everything_but_progress(bench: Bench) -> None:
    etags = {(await bench.add("a")).etag}
    changes = [
        {"labels": {"x": "1"}}, {"ttl": 5.0}, {"payload": b"p"}, {"content_type": "c"}, {"result": b"r"},
        {"error": job_pb2.JobError(code="c")}, {"status": job_pb2.JOB_STATUS_RUNNING},
    ]  # fmt: skip
    for change in changes:
        etags.add((await bench.verbs.update(update("a", **change))).job.etag)  # type: ignore[arg-type]
    assert len(etags) == len(changes) + 1


async def test_ttl_restarts_for_state_only_jobs_and_nothing_else_does(bench: Bench) -> None:
    await bench.add("a", ttl=10)
    bench.clock.advance(5)
    await bench.verbs.update(update("a", labels={"x": "1"}, status=job_pb2.JOB_STATUS_SUCCEEDED))
    assert ms((await bench.job("a")).expire_time) == bench.clock.now_ms + 5_000
    await bench.verbs.update(update("a", ttl=60))
    assert ms((await bench.job("a")).expire_time) == bench.clock.now_ms + 60_000
    bench.clock.advance(60)
    assert not await bench.exists("a")


async def test_ttl_of_a_live_job_counts_from_its_end(bench: Bench) -> None:
    await bench.add("a", "q", ttl=10)
    bench.clock.advance(100)
    job = (await bench.verbs.update(update("a", ttl=20))).job
    assert not job.HasField("expire_time")
    claimed = await bench.take("q")
    await bench.verbs.update(update("a", ttl=30))
    bench.clock.advance(5)
    await bench.verbs.complete(complete(claimed))
    assert ms((await bench.job("a")).expire_time) == bench.clock.now_ms + 30_000


async def test_ttl_of_an_ended_job_counts_from_its_end_but_not_below_its_window(bench: Bench) -> None:
    created = bench.clock.now_ms
    job = await bench.add(queue="q", key="k", ttl=60, window=100)
    bench.clock.advance(10)
    await bench.verbs.complete(complete(await bench.take("q")))
    bench.clock.advance(10)
    longer = (await bench.verbs.update(update(job.id, ttl=200))).job
    assert ms(longer.expire_time) == created + 210_000
    shorter = (await bench.verbs.update(update(job.id, ttl=1))).job
    assert ms(shorter.expire_time) == created + 100_000


async def test_no_resurrection(bench: Bench) -> None:
    await bench.add("a", ttl=5)
    bench.clock.advance(5)
    for request in (update("a", ttl=60), update("a", labels={"x": "1"}), update("never", ttl=60)):
        assert (await refusal(bench.verbs.update(request))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
    assert not await bench.exists("a")
    assert not await bench.exists("never")


async def test_limits(bench: Bench) -> None:
    await bench.add("a")
    await bench.add("b", "q")
    beyond = {
        "id": update(""),
        "etag": update("a", etag="x" * 129),
        "request_id": update("a", request_id="x" * 129),
        "labels": update("a", labels={str(i): "" for i in range(33)}),
        "ttl": update("a", ttl=0.5),
        "payload": update("a", payload=bytes(1_900_001)),
        "result": update("a", result=bytes(1_900_001)),
        "content_type": update("a", content_type="a\n"),
        "priority": update("b", priority=101),
        "delay": update("b", delay=-1),
        "status": update("a", status=77),
        "error.code": update("a", error=job_pb2.JobError(code="x" * 129)),
        "error.type": update("a", error=job_pb2.JobError(type="x" * 129)),
        "progress.fraction": update("a", progress=job_pb2.Progress(fraction=1.01)),
        "progress.note": update("a", progress=job_pb2.Progress(note="x" * 1_025)),
        "run_time": update("b", run_at=bench.clock.now_ms + limits.YEAR_MS + 1),
    }
    for field, request in beyond.items():
        error = await refusal(bench.verbs.update(request))
        assert error.reason == job_pb2.ERROR_REASON_FIELD_INVALID, field
        assert field in error.fields
    assert (await bench.job("a")).version == (await bench.job("b")).version == 1


async def test_error_texts_are_cut_the_stack_first(bench: Bench) -> None:
    await bench.add("a")
    await bench.verbs.update(update("a", error=job_pb2.JobError(code="c", message="m" * 10_000, stack="ä" * 10_000)))
    error = (await bench.job("a")).error
    assert (error.code, error.message) == ("c", "m" * 10_000)
    assert error.stack == "ä" * 3_192


async def test_the_answer_is_the_job_as_of_this_change_in_the_asked_view(bench: Bench) -> None:
    await bench.add("a", payload=b"p")
    request = update("a", result=b"r")
    assert (await bench.verbs.update(request)).job.result == b""
    request.view = job_pb2.JOB_VIEW_FULL
    answered = (await bench.verbs.update(request)).job
    assert (answered.payload, answered.result) == (b"p", b"r")
    assert answered == await bench.job("a")
    request.view = 9  # type: ignore[assignment]
    assert [*(await refusal(bench.verbs.update(request))).fields] == ["view"]
