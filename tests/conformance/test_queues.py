"""Admin.ListQueues and Admin.GetQueue."""

from __future__ import annotations

from jobwire.v1 import admin_pb2, store_pb2

from tests.requests import complete, fail, ms, release

from .bench import Bench, refusal


async def stats(bench: Bench, queue: str, namespace: str = "") -> tuple[int, int, int]:
    request = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(namespace=namespace, queue=queue))
    found = (await bench.verbs.get_queue(request)).queue.stats
    return found.ready, found.scheduled, found.running


async def oldest(bench: Bench, queue: str) -> int | None:
    request = admin_pb2.GetQueueRequest(ref=store_pb2.QueueRef(queue=queue))
    found = (await bench.verbs.get_queue(request)).queue.stats
    return ms(found.oldest_ready_time) if found.HasField("oldest_ready_time") else None


async def names(bench: Bench, namespace: str = "", page_size: int = 0) -> list[tuple[str, str]]:
    found = []
    token = ""
    while True:
        request = admin_pb2.ListQueuesRequest(namespace=namespace, page_size=page_size, page_token=token)
        answer = await bench.verbs.list_queues(request)
        assert len(answer.queues) <= (page_size or 100)
        found += [(queue.ref.namespace, queue.ref.queue) for queue in answer.queues]
        token = answer.next_page_token
        if not token:
            return found


async def test_counts_follow_every_move(bench: Bench) -> None:
    assert await stats(bench, "q") == (0, 0, 0)
    for index in range(4):
        await bench.add(f"j{index}", "q")
    await bench.add("late", "q", delay=60)
    await bench.add("other", "r")
    assert await stats(bench, "q") == (4, 1, 0)
    jobs = await bench.claim("q", max_jobs=4)
    assert await stats(bench, "q") == (0, 1, 4)
    await bench.verbs.complete(complete(jobs[0]))
    await bench.verbs.fail(fail(jobs[1]))
    await bench.verbs.fail(fail(jobs[2], delay=5))
    await bench.verbs.release(release(jobs[3]))
    assert await stats(bench, "q") == (2, 2, 0)
    bench.clock.advance(5)
    await bench.sweep()
    assert await stats(bench, "q") == (3, 1, 0)
    await bench.take("q", lease=1)
    bench.clock.advance(1)
    await bench.sweep()
    assert await stats(bench, "q") == (3, 1, 0)
    await bench.verbs.cancel(store_pb2.CancelRequest(id="late"))
    for index in range(4):
        await bench.verbs.delete(store_pb2.DeleteRequest(id=f"j{index}"))
    assert await stats(bench, "q") == (0, 0, 0)
    assert await stats(bench, "r") == (1, 0, 0)


async def test_oldest_ready_time_is_since_when_the_longest_waiting_is_ready(bench: Bench) -> None:
    assert await oldest(bench, "q") is None
    bench.clock.advance(10)
    begin = bench.clock.now_ms
    await bench.add("a", "q", tenant="t1", queue_timeout=100)
    bench.clock.advance(10)
    await bench.add("b", "q", tenant="t2", priority=5, queue_timeout=1_000)
    assert await oldest(bench, "q") == begin
    await bench.verbs.delete(store_pb2.DeleteRequest(id="a"))
    assert await oldest(bench, "q") == begin + 10_000
    claimed = await bench.take("q")
    assert await oldest(bench, "q") is None
    bench.clock.advance(10)
    await bench.verbs.release(release(claimed))
    assert await oldest(bench, "q") == begin + 20_000


async def test_queues_that_hold_a_live_job_in_order_of_their_names(bench: Bench) -> None:
    for namespace, queue in (("b", "x"), ("a", "y"), ("b", "w"), ("a", "ä"), ("a", "z"), ("a/b", "c")):
        await bench.add(queue=queue, namespace=namespace)
    await bench.add("state-only")
    await bench.add("ended", "ended")
    await bench.verbs.complete(complete(await bench.take("ended")))
    expected = [("a", "y"), ("a", "z"), ("a", "ä"), ("a/b", "c"), ("b", "w"), ("b", "x")]
    assert await names(bench) == expected
    assert await names(bench, page_size=2) == expected
    assert await names(bench, "b") == expected[4:]
    assert await names(bench, "nobody") == []


async def test_a_listed_queue_comes_with_its_statistics(bench: Bench) -> None:
    await bench.add("a", "q")
    await bench.add("b", "q", delay=5)
    [queue] = (await bench.verbs.list_queues(admin_pb2.ListQueuesRequest())).queues
    assert (queue.ref.namespace, queue.ref.queue) == ("default", "q")
    assert (queue.stats.ready, queue.stats.scheduled, queue.stats.running) == (1, 1, 0)
    assert ms(queue.stats.oldest_ready_time) == bench.clock.now_ms


async def test_odd_names(bench: Bench) -> None:
    odd = [("a", "b:c"), ("a:b", "c"), ("{0}", "}"), ("ü ", " *"), ("n", "ready"), ("ready", "n")]
    for namespace, queue in odd:
        await bench.add("j", queue, namespace=namespace)
    assert await names(bench) == sorted(odd)
    for namespace, queue in odd:
        assert await stats(bench, queue, namespace) == (1, 0, 0)


async def test_limits(bench: Bench) -> None:
    for listing, field in (
        (admin_pb2.ListQueuesRequest(namespace="x" * 129), "namespace"),
        (admin_pb2.ListQueuesRequest(page_size=1_001), "page_size"),
        (admin_pb2.ListQueuesRequest(page_token="made-up"), "page_token"),
    ):
        assert list((await refusal(bench.verbs.list_queues(listing))).fields) == [field]
    for ref in (store_pb2.QueueRef(), store_pb2.QueueRef(queue="x" * 129)):
        error = await refusal(bench.verbs.get_queue(admin_pb2.GetQueueRequest(ref=ref)))
        assert list(error.fields) == ["ref.queue"]
