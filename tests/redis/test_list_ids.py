"""ListIds: a listing in several slices."""

from __future__ import annotations

import pytest
from jobwire.v1 import store_pb2
from jobwire_server.store.redis import RedisStore, scripts

from tests.requests import create, ms


@pytest.mark.parametrize("missing", [False, True], ids=["cursor there", "cursor gone"])
async def test_a_slice_goes_on_where_the_last_one_ended(store: RedisStore, missing: bool) -> None:
    requests = [create(job_id) for job_id in "abcde"]  # one script, one instant
    results = (await store.batch_create(store_pb2.BatchCreateRequest(requests=requests))).results
    created = ms(results[0].response.job.create_time)

    async def listed(after: str, limit: int, size: int) -> tuple[object, list[bytes]]:
        last, *answer = await store._run(0, scripts.LIST_IDS, "default", created if after else 0, after, limit, size)
        return last, answer[1::2]

    assert await listed("", 5, 2) == ([b"%d" % created, b"d"], [b"e", b"d"])
    assert await listed("", 2, 5) == ([b"%d" % created, b"d"], [b"e", b"d"])
    if missing:
        await store.delete(store_pb2.DeleteRequest(id="d"))
    assert await listed("d", 5, 5) == (None, [b"c", b"b", b"a"])
    assert await listed("d", 1, 2) == ([b"%d" % created, b"c"], [b"c"])
