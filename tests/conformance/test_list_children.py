from __future__ import annotations

import base64

from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store import limits

from tests.requests import create

from .bench import Bench, refusal


async def pages(
    bench: Bench, parent: str, page_size: int = 0, view: job_pb2.JobView.ValueType = job_pb2.JOB_VIEW_BASIC
) -> list[list[job_pb2.Job]]:
    found = []
    token = ""
    while True:
        request = store_pb2.ListChildrenRequest(parent_id=parent, page_size=page_size, page_token=token, view=view)
        answer = await bench.verbs.list_children(request)
        assert answer.ByteSize() <= limits.MESSAGE_BYTES
        found.append(list(answer.jobs))
        token = answer.next_page_token
        if not token:
            return found


async def children(bench: Bench, parent: str, page_size: int = 0) -> list[str]:
    return [job.id for page in await pages(bench, parent, page_size) for job in page]


async def test_children_come_in_order_of_creation_then_id(bench: Bench) -> None:
    await bench.add("p", "q")
    for name in ("p/c", "p/a"):
        await bench.add(name, "q", parent_id="p")
    bench.clock.advance(1)
    for name in ("p/b", "p/ä", "p/B"):
        await bench.add(name, "q", parent_id="p")
    await bench.add("p/a/deeper", "q", parent_id="p/a")
    await bench.add("p/not-a-child", "q")
    assert await children(bench, "p") == ["p/a", "p/c", "p/B", "p/b", "p/ä"]
    assert await children(bench, "p", page_size=2) == ["p/a", "p/c", "p/B", "p/b", "p/ä"]
    assert await children(bench, "p/a") == ["p/a/deeper"]


async def test_no_children_and_no_such_job_are_empty_answers(bench: Bench) -> None:
    await bench.add("p")
    assert await pages(bench, "p") == [[]]
    assert await pages(bench, "never") == [[]]


async def test_a_deleted_parent_still_has_its_children(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", parent_id="p")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p"))
    assert await children(bench, "p") == ["p/a"]
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p/a"))
    assert await children(bench, "p") == []


async def test_vanished_and_expired_children_are_skipped(bench: Bench) -> None:
    await bench.add("p")
    for index in range(6):
        await bench.add(f"p/{index}", parent_id="p", ttl=5 if index == 0 else 60)
    await bench.lose("p/1")
    bench.clock.advance(5)
    assert await children(bench, "p", page_size=2) == ["p/2", "p/3", "p/4", "p/5"]


async def test_a_child_that_stands_throughout_appears_once(bench: Bench) -> None:
    await bench.add("p")
    for index in range(6):
        await bench.add(f"p/{index}", parent_id="p")
    first = await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p", page_size=3))
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p/2"))
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p/0"))
    bench.clock.advance(1)
    await bench.add("p/0new", parent_id="p")
    token = first.next_page_token
    rest = await bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p", page_token=token))
    assert [job.id for job in rest.jobs] == ["p/3", "p/4", "p/5", "p/0new"]


async def test_full_pages_are_cut_by_bytes(bench: Bench) -> None:
    await bench.add("p")
    for index in range(5):
        await bench.add(f"p/{index}", parent_id="p", payload=bytes(1_800_000))
    full = await pages(bench, "p", view=job_pb2.JOB_VIEW_FULL)
    assert [job.id for page in full for job in page] == [f"p/{i}" for i in range(5)]
    assert len([page for page in full if page]) == 3
    assert all(len(job.payload) == 1_800_000 for page in full for job in page)
    assert len((await pages(bench, "p"))[0]) == 5


async def test_page_tokens_that_are_not_ours_are_refused(bench: Bench) -> None:
    await bench.add("p")
    made_up = ["x", "[]", "####", base64.urlsafe_b64encode(b'["a",1]').decode(), "é", "A" * 1_025]
    for token in made_up:
        error = await refusal(bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p", page_token=token)))
        assert list(error.fields) == ["page_token"], token
    error = await refusal(bench.verbs.list_children(store_pb2.ListChildrenRequest(parent_id="p", page_size=1_001)))
    assert list(error.fields) == ["page_size"]


async def test_large_labels_are_paged_by_bytes(bench: Bench) -> None:
    await bench.add("p")
    labels = {f"{number:064}": "v" * 256 for number in range(32)}
    for start in range(0, 500, 100):
        requests = [create(f"p/{number}", parent_id="p", labels=labels) for number in range(start, start + 100)]
        await bench.verbs.batch_create(store_pb2.BatchCreateRequest(requests=requests))
    request = store_pb2.ListChildrenRequest(parent_id="p", page_size=1_000)
    found: list[str] = []
    while True:
        page = await bench.verbs.list_children(request)
        assert page.ByteSize() <= limits.MESSAGE_BYTES
        found += [job.id for job in page.jobs]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert sorted(found) == sorted(f"p/{number}" for number in range(500))
