"""The engine did it, and its reply got lost: the store asks again, and must not do it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.store.redis import RedisStore

from tests.engines import Engine
from tests.requests import claim, complete, create, fail, heartbeat, release, seconds, update
from tests.scenarios.engine_links import called, proxied, served, stored, url_of
from tests.scenarios.lives import life, settle_in_a_batch
from tests.scenarios.scale import scaled

Act = Callable[[RedisStore, store_pb2.ClaimedJob], Awaitable[object]]
"""One call that runs one script, given the lease of a running job."""


async def of_hand_off(store: RedisStore, _: store_pb2.ClaimedJob) -> object:
    outcome, handed = await store.hand_off(create("new", "new"), claim("new"), 5)
    assert isinstance(outcome, store_pb2.CreateResponse)
    assert outcome.created
    return tuple(handed.jobs)


async def of_claim(store: RedisStore, _: store_pb2.ClaimedJob) -> object:
    return tuple((await store.claim(claim("waiting", max_jobs=2))).jobs)


async def of_batch_create(store: RedisStore, _: store_pb2.ClaimedJob) -> object:
    request = store_pb2.BatchCreateRequest(requests=[create(f"new-{number}", "new") for number in range(3)])
    return [result.response.created for result in (await store.batch_create(request)).results]


async def of_heartbeat(store: RedisStore, job: store_pb2.ClaimedJob) -> object:
    [beat] = (await store.heartbeat(heartbeat(job, progress=job_pb2.Progress(fraction=0.5)))).results
    return beat.state


async def of_batch_settle(store: RedisStore, job: store_pb2.ClaimedJob) -> object:
    return (await store.batch_settle(settle_in_a_batch(job))).results[0].WhichOneof("outcome")


async def of_reclaim_stale(store: RedisStore, _: store_pb2.ClaimedJob) -> object:
    request = store_pb2.ReclaimStaleRequest()
    request.heartbeat_before.seconds = 4_000_000_000
    await store.reclaim_stale(request)
    return None  # a repeat finds nothing any more


def answering(act: Act, *fields: str) -> Act:
    """Of its answer, only these fields: others own up to a repeat."""

    async def picked(store: RedisStore, job: store_pb2.ClaimedJob) -> object:
        answer = await act(store, job)
        return [getattr(answer, field) for field in fields]

    return picked


ACTS: dict[str, Act] = {
    "create": answering(lambda store, _: store.create(create("new", "new")), "created"),
    "create with a drawn id": answering(lambda store, _: store.create(create(queue="new")), "created"),
    "create with a key": answering(lambda store, _: store.create(create(queue="new", key="k")), "created"),
    "create a child": answering(lambda store, _: store.create(create("job/a", "new", parent_id="job")), "created"),
    "batch create": of_batch_create,
    "hand off": of_hand_off,
    "claim": of_claim,
    "update": answering(lambda store, _: store.update(update("job", labels={"a": "b"}))),
    "heartbeat": of_heartbeat,
    "release": answering(lambda store, job: store.release(release(job))),
    "fail": answering(lambda store, job: store.fail(fail(job, "no", delay=0)), "status"),
    "fail for good": answering(lambda store, job: store.fail(fail(job, retryable=False)), "status"),
    "complete": answering(lambda store, job: store.complete(complete(job, b"result"))),
    "batch settle": of_batch_settle,
    "cancel a running job": answering(
        lambda store, _: store.cancel(store_pb2.CancelRequest(id="job", grace=seconds(60))), "outcome"
    ),
    "cancel a waiting job": answering(
        lambda store, _: store.cancel(store_pb2.CancelRequest(id="waiting-0")), "outcome"
    ),
    "delete": answering(lambda store, _: store.delete(store_pb2.DeleteRequest(id="waiting-0"))),
    "reclaim": of_reclaim_stale,
}


async def lived_through(store: RedisStore, act: Act, before: Callable[[], Awaitable[None]]) -> list[object]:
    """What an act answers, and what it leaves behind."""
    await store.create(create("job", "q"))
    for number in range(3):
        await store.create(create(f"waiting-{number}", "waiting"))
    [held] = (await store.claim(claim("q", lease=300))).jobs
    await before()
    answer = await act(store, held)

    job = (await store.get(store_pb2.GetRequest(id="job", view=job_pb2.JOB_VIEW_FULL))).job
    story: list[object] = [
        (job.status, job.version, job.attempt, job.failures, job.losses, dict(job.labels), job.result),
        (job.error.message, len(job.attempts), job.cancel.requested),
        len((await store.list_ids(store_pb2.ListIdsRequest())).ids),
    ]
    if not isinstance(answer, tuple):
        story.append(answer)
    else:
        # The tokens that were answered are the ones that hold.
        for claimed in answer:
            assert not (await store.complete(complete(claimed))).repeated_call
            story.append((claimed.job.id, claimed.job.attempt))
    for queue in ("q", "waiting", "new"):
        rest = (await store.claim(claim(queue, max_jobs=9))).jobs
        story.append(sorted((one.job.queue, one.job.version, one.job.attempt) for one in rest))
    return story


@pytest.mark.parametrize("verb", ACTS)
async def test_d14_a_repeat_after_a_lost_reply_changes_nothing(engine: Engine, verb: str) -> None:
    """A client library that sends again when a reply is lost ran a script twice: two jobs, two attempts, a completion
    refused to the one who had made it (redis-py #261, redis-rb #668).
    """
    async with proxied(engine) as proxy, stored(url_of(proxy), sweep_interval_ms=0) as store:

        async def calmly() -> None: ...

        async def lose_the_next_reply() -> None:
            proxy.lose_replies(b"EVALSHA", each=2)
            await store.exists(store_pb2.ExistsRequest(id="nobody"))  # the first of two; the repeat is the third

        calm = await lived_through(store, ACTS[verb], calmly)  # which also teaches the engine the scripts
        await engine.flush()

        async def act(store: RedisStore, job: store_pb2.ClaimedJob) -> object:
            answer = await ACTS[verb](store, job)
            proxy.keep_replies()
            return answer

        assert await lived_through(store, act, lose_the_next_reply) == calm
        assert proxy.lost_replies == 1


async def test_d14_whole_lives_on_a_link_that_loses_replies(engine: Engine) -> None:
    """The same in a crowd, where one reset takes the replies of many calls along."""
    lives = scaled(150)
    async with proxied(engine) as proxy, served(url_of(proxy)) as (address, _), called(address) as [verbs]:
        calm = await life(verbs, "calm")
        proxy.lose_replies(b"EVALSHA", each=20)
        waiting = iter(range(lives))
        stories: list[list[object]] = []

        async def live_on() -> None:
            for number in waiting:
                story = await life(verbs, f"c{number}")
                stories.append(story)

        await asyncio.gather(*(live_on() for _ in range(30)))
        proxy.keep_replies()
        assert len(stories) == lives
        assert [story for story in stories if story != calm] == []
        assert proxy.lost_replies >= 3
