"""What callers put in comes out as it was, or is refused at once; no text and no number strands a job."""

from __future__ import annotations

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits

from tests.conformance.bench import Bench, refusal
from tests.requests import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    claim,
    complete,
    create,
    fail,
    heartbeat,
    release,
    update,
)

NUMBERS = [
    b"130775545883395173",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"1e400",
    b"-0.0",
    b"[]",
    b"{}",
    b"[[],{}]",
    b'{"a":1,"a":2}',
    b"[" * 2_000 + b"]" * 2_000,
    b"\xef\xbb\xbf{}",
    b"\xc3\x28\xff\xfe",
    b"",
    b"\x00",
    bytes(range(256)),
    b"\x1f\n\x1e\r\n",
]

ODD = (
    "NUL \x00, escape \x1b[31mred\x1b[0m, bell \x07, right to left \u202e\u2067, separator \u2028, \U0001f9ea, e\u0301"
)


async def test_b14_bytes_are_the_same_on_every_path(bench: Bench) -> None:
    """Scripts decoded a payload and encoded it anew: large integers changed and empty arrays became objects (sidekiq
    #2478, redis #7520, #856 and #1118). Here each payload is carried through delay, failure, loss, release, cancel and
    death, and comes back as it was; so do results.
    """
    for number, content in enumerate(NUMBERS):
        job_id = f"j{number}"
        await bench.add(job_id, "q", payload=content, delay=1, lease=2, max_attempts=3)
        bench.clock.advance(1)
        await bench.sweep()
        for path in ("delayed", "failed", "released", "lost"):
            claimed = await bench.take("q")
            assert (claimed.job.id, claimed.job.payload) == (job_id, content), path
            assert (await bench.job(job_id)).payload == content
            if path == "delayed":
                await bench.verbs.fail(fail(claimed, delay=1))
                bench.clock.advance(1)
            elif path == "failed":
                await bench.verbs.release(release(claimed))
            else:
                bench.clock.advance(2)
            await bench.sweep()
        job = await bench.job(job_id)
        assert (job.status, job.payload) == (FAILED, content), "dead, and still the same"
        for after in ("there", "changed"):
            done = f"{job_id}-{after}"
            await bench.add(done, "q", payload=b"first" if after == "changed" else content)
            if after == "changed":
                await bench.verbs.update(update(done, payload=content))
            claimed = await bench.take("q")
            assert claimed.job.payload == content
            await bench.verbs.complete(complete(claimed, content))
            job = await bench.job(done)
            assert (job.status, job.payload, job.result) == (SUCCEEDED, content, content)


async def test_b14_numbers_are_exact(bench: Bench) -> None:
    """The same reports (redis #7520): what scripts answer as numbers. Times are exact to the millisecond however far,
    and a version counts every change; 10^14, the largest that a caller may name, is well within what a double holds.
    """
    bench.clock.advance(ms=1_234_567)
    far = 365 * 86_400
    first = await bench.add("far", "q", delay=far, ttl=far, queue_timeout=far, priority=-99, max_attempts=999)
    assert first.create_time.ToMilliseconds() == bench.clock.now_ms
    assert first.run_time.ToMilliseconds() == bench.clock.now_ms + far * 1_000
    job = await bench.job("far")
    assert (job.priority, job.max_attempts, job.ttl.seconds, job.queue_timeout.seconds) == (-99, 999, far, far)
    for number in range(300):
        labels = {"n": f"{number}"}
        assert (await bench.verbs.update(update("far", labels=labels))).job.version == first.version + number + 1
    bench.clock.advance(far, ms=1)
    await bench.sweep()
    claimed = await bench.take("q", lease=3_600)
    assert claimed.job.lease_expire_time.ToMilliseconds() == bench.clock.now_ms + 3_600_000
    assert claimed.job.version == first.version + 302
    request = store_pb2.GetRequest(id="far", after_version=10**14)
    assert (await bench.verbs.get(request)).job.version == claimed.job.version
    error = await refusal(bench.verbs.get(store_pb2.GetRequest(id="far", after_version=10**14 + 1)))
    assert list(error.fields) == ["after_version"]


async def test_b16_odd_texts_in_results_and_errors_settle_the_job(bench: Bench) -> None:
    """A result or error that the store would not take left the job running, and its caller waiting for an hour
    (unstract PR 2289, kestra #10326, awa #85, django-celery-results #82, console PR 3898). Here any text is taken and
    comes back as it was.
    """
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), ODD, stack=ODD[::-1], code="C\u202e", type="\U0001f9ea"))
    error = (await bench.job("a")).error
    assert (error.message, error.stack, error.code, error.type) == (ODD, ODD[::-1], "C\u202e", "\U0001f9ea")
    claimed = await bench.take("q")
    note = job_pb2.Progress(fraction=0.5, note=ODD)
    await bench.verbs.heartbeat(heartbeat(claimed, progress=note))
    await bench.verbs.cancel(store_pb2.CancelRequest(id="a", reason=ODD))
    await bench.verbs.complete(complete(claimed, ODD.encode()))
    job = await bench.job("a")
    assert (job.status, job.result, job.progress, job.cancel.reason) == (SUCCEEDED, ODD.encode(), note, ODD)


async def test_b16_a_long_traceback_is_cut_not_refused(bench: Bench) -> None:
    """The same reports (unstract PR 2289): megabytes of traceback, cut to the documented 16 KiB between characters.
    Over gRPC no message may pass 4 MiB.
    """
    size = 5_000_000 if bench.level == "store" else 4_000_000
    await bench.add("a", "q")
    await bench.verbs.fail(fail(await bench.take("q"), "why", stack="\u00fc" * (size // 2)))
    error = (await bench.job("a")).error
    assert error.message == "why"
    assert set(error.stack) == {"\u00fc"}
    assert limits.ERROR_TEXT_BYTES - 8 <= len((error.message + error.stack).encode()) <= limits.ERROR_TEXT_BYTES


async def test_b16_what_is_refused_leaves_the_lease(bench: Bench) -> None:
    """The same reports (unstract PR 2289): what cannot be stored is refused at once, by the name of its field, and the
    worker still holds the job to send something better.
    """
    await bench.add("a", "q")
    claimed = await bench.take("q")
    nan = job_pb2.Progress(fraction=float("nan"))
    for call, field in (
        (bench.verbs.complete(complete(claimed, b"x" * (limits.PAYLOAD_BYTES + 1))), "result"),
        (bench.verbs.fail(fail(claimed, code="NUL\x00")), "error.code"),
        (bench.verbs.fail(fail(claimed, type="two\nlines")), "error.type"),
        (bench.verbs.heartbeat(heartbeat(claimed, progress=nan)), "leases[0].progress.fraction"),
    ):
        error = await refusal(call)
        assert (error.reason, list(error.fields)) == (job_pb2.ERROR_REASON_FIELD_INVALID, [field])
        job = await bench.job("a")
        assert (job.status, job.version) == (RUNNING, claimed.job.version)
    await bench.verbs.complete(complete(claimed, b"smaller"))
    assert (await bench.job("a")).result == b"smaller"


NAMES = ["\x00", "a\x1fb", "\x1b[31m", "a\nb", "a\u2028b", "\x7f", "\x9f"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_b16_names_that_no_key_could_hold_are_refused(bench: Bench, name: str) -> None:
    """The same reports (kestra #10326): names become parts of keys, so control characters in one are refused before
    anything is written, whoever's name it is.
    """
    calls = {
        "job_id": bench.verbs.create(create(name, "q")),
        "job.queue": bench.verbs.create(create("a", name)),
        "job.kind": bench.verbs.create(create("a", "q", kind=name)),
        "job.tenant": bench.verbs.create(create("a", "q", tenant=name)),
        "job.namespace": bench.verbs.create(create("a", "q", namespace=name)),
        "job.dedup.key": bench.verbs.create(create("", "q", key=name)),
        "job.labels": bench.verbs.create(create("a", "q", labels={"k": name})),
        "worker_id": bench.verbs.claim(claim("q", worker_id=name)),
        "queues[0].queue": bench.verbs.claim(claim(name)),
    }
    for field, call in calls.items():
        assert list((await refusal(call)).fields) == [field]
    assert (await bench.verbs.list_ids(store_pb2.ListIdsRequest())).ids == []


@pytest.mark.parametrize(
    "name", ["\u202eright to left", "\U0001f9ea", "e\u0301", "{0}", "a:b*?[c]", "' OR 1=1 --", " "]
)
async def test_b16_any_other_name_is_itself(bench: Bench, name: str) -> None:
    """The same reports (kestra #10326): a name that is only unusual works everywhere and comes back as it was; nothing
    in it means anything to the engine.
    """
    job = await bench.add(name, name, kind=name, tenant=name, namespace=name, labels={name: name})
    assert (job.id, job.queue, job.kind, job.tenant, job.namespace, dict(job.labels)) == (*[name] * 5, {name: name})
    await bench.add("plain", "plain")
    request = claim(worker_id=name)
    request.queues.add(namespace=name, queue=name)
    [claimed] = (await bench.verbs.claim(request)).jobs
    assert (claimed.job.id, claimed.job.worker_id) == (name, name)
    await bench.verbs.complete(complete(claimed))
    assert (await bench.job(name, name)).attempts[0].worker_id == name
    assert await bench.claim_ids("plain") == ["plain"]


def test_b16_a_lone_surrogate_never_leaves_the_caller() -> None:
    """The same reports (django-celery-results #82): text that is no UTF-8 cannot be put into a message at all, so it
    fails where it is made, under the worker's eyes.
    """
    with pytest.raises(ValueError, match="surrogates"):
        job_pb2.JobError(message="half \ud83e")
