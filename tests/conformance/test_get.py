from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.types import NoticeKind

from tests.requests import complete, heartbeat, ms, seconds, update

from .bench import Bench, refusal


async def test_answers_are_copies(bench: Bench) -> None:
    await bench.add("a", labels={"x": "1"})
    job = await bench.job("a")
    job.labels["x"] = "2"
    job.kind = "changed"
    assert dict((await bench.job("a")).labels) == {"x": "1"}
    assert (await bench.job("a")).kind == ""


async def test_unknown_and_other_namespaces_job(bench: Bench) -> None:
    await bench.add("a", namespace="other")
    error = await refusal(bench.job("a"))
    assert error.reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND
    assert "'a'" in error.message
    assert (await bench.job("a", "other")).id == "a"


async def test_expiry_is_logical_and_to_the_millisecond(bench: Bench) -> None:
    await bench.add("a", ttl=10)
    bench.clock.advance(10, ms=-1)
    assert ms((await bench.job("a")).expire_time) == bench.clock.now_ms + 1
    bench.clock.advance(ms=1)
    assert (await refusal(bench.job("a"))).reason == job_pb2.ERROR_REASON_JOB_NOT_FOUND


async def test_everything_survives_another_store_object(bench: Bench) -> None:
    await bench.add("a", "q", payload=b"p", kind="k", labels={"l": "v"}, tenant="t", priority=3, lease=60)
    await bench.add("done", "q2", payload=b"x")
    claimed = await bench.take("q", worker_id="w")
    await bench.verbs.heartbeat(heartbeat(claimed, progress=job_pb2.Progress(fraction=0.5, note="half")))
    await bench.verbs.complete(complete(await bench.take("q2"), b"result"))
    before = [await bench.job("a"), await bench.job("done")]
    assert (before[0].status, before[0].attempt) == (job_pb2.JOB_STATUS_RUNNING, 1)
    again = await bench.backend.open()
    for job in before:
        request = store_pb2.GetRequest(id=job.id, view=job_pb2.JOB_VIEW_FULL)
        assert (await again.get(request)).job == job
    assert not (await again.complete(complete(claimed, b"r"))).repeated_call
    await again.close()


async def test_view_and_wait_are_checked(bench: Bench) -> None:
    await bench.add("a")
    for request in (
        store_pb2.GetRequest(id="a", view=job_pb2.JobView.ValueType(77)),
        store_pb2.GetRequest(id="a", wait=seconds(61)),
        store_pb2.GetRequest(id="a", wait=seconds(-1)),
        store_pb2.GetRequest(id="a", after_version=-1),
        store_pb2.GetRequest(),
        store_pb2.GetRequest(id="x" * 257),
    ):
        assert (await refusal(bench.verbs.get(request))).reason == job_pb2.ERROR_REASON_FIELD_INVALID


async def test_a_watcher_is_told_once_of_the_next_change(bench: Bench) -> None:
    bench.needs("inner verbs")
    watcher = await bench.backend.open("watcher")
    notices = watcher.notices()
    assert (await anext(notices)).kind == NoticeKind.RESUMED
    await bench.add("a")
    await watcher.get(store_pb2.GetRequest(id="a"), watch=True)
    await bench.verbs.update(update("a", labels={"x": "1"}))
    await bench.verbs.update(update("a", labels={"x": "2"}))
    await bench.add("b")
    await watcher.get(store_pb2.GetRequest(id="b"), watch=True)
    await bench.verbs.delete(store_pb2.DeleteRequest(id="b"))
    heard = [await anext(notices), await anext(notices)]
    assert [(notice.kind, notice.namespace, notice.name) for notice in heard] == [
        (NoticeKind.CHANGED, "default", "a"),
        (NoticeKind.CHANGED, "default", "b"),
    ]
    await notices.aclose()
    await watcher.close()
