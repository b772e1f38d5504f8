"""The engine's scripts against the rules in plain Python: the same calls, drawn at random, must get the same answers.

Both stores get the same clock, and draw the same ids, tokens and nonces, so that answers can be compared whole.
Legitimate differences: how page tokens of ReclaimStale are spelled, and statistics after a record was lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobwire.v1 import admin_pb2, job_pb2, store_pb2
from jobwire_server.store.base import Store
from jobwire_server.store.draw import SeededDraw
from jobwire_server.store.errors import StoreError
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

from tests.clock import Clock
from tests.engines import Engine
from tests.requests import at, create, seconds, update

from .backends import lose_from_engine, lose_from_memory

EXAMPLES = int(os.environ.get("JOBWIRE_TEST_EXAMPLES", "100"))
"""How many sequences to try; set it to thousands after a change of a rule."""

Step = tuple[str, Any]

IDS = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "a/x/z"])
QUEUES = st.sampled_from(["q", "r"])
SHORT = st.sampled_from([1.0, 2.0, 3.0, 5.0])
MAYBE_SHORT = st.none() | st.sampled_from([0.0]) | SHORT
CONTENT = st.sampled_from([b"", b"\x00\xff", b"x" * 2_000])
STATUSES = st.sampled_from(job_pb2.JobStatus.values()[1:])
REQUEST_IDS = st.sampled_from(["", "", "r1", "r2"])
ERRORS = st.builds(
    job_pb2.JobError, code=st.sampled_from(["", "C"]), retryable=st.sampled_from([None, None, True, False])
)
PROGRESS = st.none() | st.builds(job_pb2.Progress, fraction=st.sampled_from([0.0, 0.5]))


def given_some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


CREATES = given_some(
    job_id=IDS,
    queue=QUEUES,
    parent=st.just(True),
    tenant=st.sampled_from(["s", "t", "ä"]),
    priority=st.sampled_from([0, 1, -1]),
    delay=MAYBE_SHORT,
    key=st.sampled_from(["k", "l"]),
    window=SHORT,
    ttl=SHORT,
    request_id=REQUEST_IDS,
    queue_timeout=SHORT,
    lease=SHORT,
    max_attempts=st.sampled_from([1, 2, 3]),
    payload=CONTENT,
    labels=st.sampled_from([{}, {"l": "v"}]),
    status=STATUSES,
    kind=st.sampled_from(["", "kind"]),
    held=st.integers(0, 20),
)
UPDATES = given_some(
    labels=st.sampled_from([{}, {"x": "y"}]),
    ttl=SHORT,
    payload=CONTENT,
    content_type=st.sampled_from(["", "t"]),
    priority=st.sampled_from([0, 1]),
    delay=st.just(0.0) | SHORT,
    status=STATUSES,
    result=CONTENT,
    error=ERRORS,
    progress=PROGRESS,
    request_id=REQUEST_IDS,
)
SETTLEMENTS = st.tuples(
    st.sampled_from(["complete", "fail", "release"]), st.integers(0, 30), MAYBE_SHORT, ERRORS, CONTENT
)
LEASES = st.lists(st.tuples(st.integers(0, 30), PROGRESS), min_size=1, max_size=4)
STEPS: st.SearchStrategy[Step] = st.one_of(
    *[st.tuples(st.just("create"), CREATES)] * 4,
    *[st.tuples(st.just("claim"), st.tuples(st.lists(QUEUES, min_size=1, unique=True), st.integers(1, 4)))] * 2,
    *[st.tuples(st.just("settle"), st.lists(SETTLEMENTS, min_size=1, max_size=3))] * 2,
    *[st.tuples(st.just("advance"), st.sampled_from([1, 500, 1_000, 2_000, 7_000]))] * 2,
    st.tuples(st.just("update"), st.tuples(IDS, UPDATES, st.sampled_from(["", "", "current", "stale"]))),
    st.tuples(st.just("sweep"), st.none()),
    st.tuples(st.just("heartbeat"), LEASES),
    st.tuples(st.just("delete"), st.tuples(IDS, st.sampled_from(["", "current", "stale"]))),
    st.tuples(st.just("cancel"), IDS),
    st.tuples(st.just("take"), st.tuples(QUEUES, st.integers(1, 4), st.sampled_from([1, 5_000]))),
    st.tuples(st.just("reclaim"), st.tuples(st.none() | st.sampled_from([0, 1, 2_000]), st.integers(1, 3))),
    st.tuples(st.just("lose"), IDS),
    st.tuples(st.just("read"), st.none()),
)


class Player:
    """Plays steps on one store and keeps what it answered."""

    def __init__(self, store: Store, clock: Clock, lose: Callable[[str], Awaitable[object]]) -> None:
        self._store = store
        self._clock = clock
        self._lose_record = lose
        self._lost = False
        self._leases = [store_pb2.LeaseRef(id="a", token="made-up")]

    async def play(self, step: Step) -> list[object]:
        """What the store answers, refusals included."""
        verb, args = step
        try:
            return [answer async for answer in getattr(self, f"_{verb}")(args)]
        except StoreError as error:
            return [error.reason_name, error.message, error.metadata, error.fields]

    def _lease(self, index: int) -> store_pb2.LeaseRef:
        return self._leases[-1 - index % len(self._leases)]

    async def _etag(self, job_id: str, which: str) -> str:
        if which != "current":
            return which
        try:
            return (await self._store.get(store_pb2.GetRequest(id=job_id))).job.etag
        except StoreError:
            return "none"

    def _remember(self, jobs: Any) -> None:
        self._leases += [
            store_pb2.LeaseRef(namespace=job.job.namespace, id=job.job.id, token=job.lease_token) for job in jobs
        ]

    async def _create(self, fields: dict[str, Any]) -> Any:
        fields = dict(fields)
        held = fields.pop("held", None)
        if fields.pop("parent", False) and "/" in fields.get("job_id", ""):
            fields["parent_id"] = fields["job_id"].rpartition("/")[0]
            if held is not None:
                fields["parent_token"] = self._lease(held).token
        elif "key" in fields:
            fields.pop("job_id", None)
        if "queue" in fields:
            fields.pop("status", None)
        else:
            for field in ("priority", "delay", "queue_timeout", "lease", "max_attempts"):
                fields.pop(field, None)
        yield await self._store.create(create(**fields))

    async def _update(self, args: Any) -> Any:
        job_id, fields, etag = args
        yield await self._store.update(update(job_id, etag=await self._etag(job_id, etag), **fields))

    async def _delete(self, args: Any) -> Any:
        job_id, etag = args
        yield await self._store.delete(store_pb2.DeleteRequest(id=job_id, etag=await self._etag(job_id, etag)))

    async def _cancel(self, job_id: str) -> Any:
        yield await self._store.cancel(store_pb2.CancelRequest(id=job_id, reason="why"))

    async def _claim(self, args: Any) -> Any:
        queues, max_jobs = args
        refs = [store_pb2.QueueRef(queue=queue) for queue in queues]
        answer = await self._store.claim(
            store_pb2.ClaimRequest(queues=refs, max_jobs=max_jobs, worker_id="w", lease_duration=seconds(2))
        )
        self._remember(answer.jobs)
        yield answer

    async def _take(self, args: Any) -> Any:
        queue, max_jobs, max_bytes = args
        request = store_pb2.ClaimRequest(queues=[store_pb2.QueueRef(queue=queue)])
        claimed = await self._store.claim_from(0, request, max_jobs, max_bytes, waiting=True)
        self._remember(claimed.jobs)
        yield claimed.jobs
        if not self._lost:
            yield claimed.more
            yield await self._store.look(0, [("default", "q"), ("default", "r")])

    async def _settle(self, settlements: Any) -> Any:
        request = store_pb2.BatchSettleRequest()
        for verb, index, delay, error, result in settlements:
            lease, item = self._lease(index), request.settlements.add()
            wait = None if delay is None else seconds(delay)
            if verb == "complete":
                item.complete.CopyFrom(store_pb2.CompleteRequest(lease=lease, result=result))
            elif verb == "fail":
                item.fail.CopyFrom(store_pb2.FailRequest(lease=lease, error=error, delay=wait))
            else:
                item.release.CopyFrom(store_pb2.ReleaseRequest(lease=lease, delay=wait))
        yield await self._store.batch_settle(request)

    async def _heartbeat(self, beats: Any) -> Any:
        leases = [store_pb2.LeaseHeartbeat(lease=self._lease(index), progress=progress) for index, progress in beats]
        yield await self._store.heartbeat(store_pb2.HeartbeatRequest(leases=leases))

    async def _reclaim(self, args: Any) -> Any:
        age, page_size = args
        token, first = "", True
        while token or first:
            request = store_pb2.ReclaimStaleRequest(page_size=page_size, page_token=token)
            if age is not None:
                request.heartbeat_before.CopyFrom(at(self._clock.now_ms - age + 1))
            answer = await self._store.reclaim_stale(request)
            yield list(answer.reclaimed)
            token, first = answer.next_page_token, False

    async def _sweep(self, _: None) -> Any:
        for partition in range(self._store.partitions):
            swept = await self._store.sweep(partition)
            yield swept if not self._lost else swept._replace(next_ms=0)

    async def _lose(self, job_id: str) -> Any:
        self._lost = True
        await self._lose_record(job_id)
        yield None

    async def _read(self, _: None) -> Any:
        """Everything that can be seen."""
        ids = (await self._store.list_ids(store_pb2.ListIdsRequest(limit=1_000))).ids
        yield list(ids)
        known = [*ids, "a", "b", "c", "a/x"]
        yield await self._store.batch_get(store_pb2.BatchGetRequest(ids=known, view=job_pb2.JOB_VIEW_FULL))
        for parent in known:
            yield await self._store.list_children(store_pb2.ListChildrenRequest(parent_id=parent))
            yield await self._store.exists(store_pb2.ExistsRequest(id=parent))
        yield await self._store.held(self._leases)
        if not self._lost:
            yield await self._store.list_queues(admin_pb2.ListQueuesRequest())


async def compare(engine: Engine, steps: list[Step], partitions: int) -> None:
    await engine.flush()
    clock = Clock()
    memory = MemoryStore(clock=clock, partitions=partitions, draw=SeededDraw(1), replica="one", sweep_interval_ms=0)
    redis = await RedisStore.connect(
        engine.url, clock=clock, partitions=partitions, draw=SeededDraw(1), replica="one", sweep_interval_ms=0
    )

    async def lose_in_memory(job_id: str) -> None:
        lose_from_memory(memory, "default", [job_id])

    try:
        players = (
            Player(memory, clock, lose_in_memory),
            Player(redis, clock, lambda job_id: lose_from_engine(engine, partitions, "default", [job_id])),
        )
        for step in [*steps, ("read", None), ("advance", 10_000), ("sweep", None), ("read", None)]:
            if step[0] == "advance":
                clock.advance(ms=step[1])
                continue
            expected, found = [await player.play(step) for player in players]
            assert found == expected, step
        assert await engine.keys_without_ttl() == []
    finally:
        await redis.close()


# Long sequences of few sorts of calls, to look closely at lines and rings.
SHARING: st.SearchStrategy[Step] = st.one_of(
    *[
        st.tuples(
            st.just("create"),
            st.fixed_dictionaries(
                {"queue": st.just("q"), "tenant": st.sampled_from("stuv"), "priority": st.sampled_from([0, 0, 0, 1])},
                optional={"job_id": IDS, "delay": st.just(1.0), "queue_timeout": st.just(3.0)},
            ),
        )
    ]
    * 4,
    *[st.tuples(st.just("claim"), st.tuples(st.just(["q"]), st.integers(1, 4)))] * 2,
    st.tuples(st.just("settle"), st.lists(SETTLEMENTS, min_size=1, max_size=3)),
    st.tuples(st.just("settle"), st.tuples(st.tuples(st.just("release"), st.integers(0, 5), *[st.none()] * 3))),
    st.tuples(st.just("advance"), st.just(1_000)),
    st.tuples(st.just("sweep"), st.none()),
    st.tuples(st.just("lose"), IDS),
    st.tuples(st.just("delete"), st.tuples(IDS, st.just(""))),
    st.tuples(st.just("update"), st.tuples(IDS, given_some(priority=st.integers(0, 1), delay=SHORT), st.just(""))),
)


@pytest.mark.timeout(900)  # a failing example is made small first, which takes minutes
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, min_size=20, max_size=60) | st.lists(SHARING, min_size=40, max_size=120),
    partitions=st.sampled_from([1, 3]),
)
def test_the_same_calls_get_the_same_answers(engine: Engine, steps: list[Step], partitions: int) -> None:
    asyncio.run(compare(engine, steps, partitions))
