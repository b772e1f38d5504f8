"""A job's whole life through every verb that changes it, told in a way that says whether anything happened twice."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.conformance.verbs import Verbs
from tests.requests import claim, complete, create, fail, heartbeat, lease_of, release, update


async def life(verbs: Verbs, name: str) -> list[object]:
    """Lives in a queue of its own, so that what it is answered depends on nobody else.

    Repeats that the answers own up to are allowed and left out; whatever else differs from another life is an effect
    too many or too few.
    """
    story: list[object] = []

    async def tell() -> None:
        job = (await verbs.get(store_pb2.GetRequest(id=name, view=job_pb2.JOB_VIEW_FULL))).job
        story.append((job.status, job.version, job.attempt, job.failures, job.losses, dict(job.labels), job.result))

    async def take() -> store_pb2.ClaimedJob:
        [claimed] = (await verbs.claim(claim(name, max_jobs=5, lease=300))).jobs
        assert claimed.job.id == name
        return claimed

    story.append((await verbs.create(create(name, name, max_attempts=9))).created)
    await verbs.update(update(name, labels={"name": name[:1]}))
    await verbs.release(release(await take()))
    await tell()
    await verbs.fail(fail(await take(), delay=0))
    await tell()
    claimed = await take()
    [beat] = (await verbs.heartbeat(heartbeat(claimed, progress=job_pb2.Progress(fraction=0.5)))).results
    story.append(beat.state)
    await verbs.complete(complete(claimed, b"result"))
    assert (await verbs.complete(complete(claimed, b"another"))).repeated_call
    await tell()
    await verbs.delete(store_pb2.DeleteRequest(id=name))
    story.append((await verbs.exists(store_pb2.ExistsRequest(id=name))).exists)
    return story


def settle_in_a_batch(claimed: store_pb2.ClaimedJob) -> store_pb2.BatchSettleRequest:
    """Fails it, to be retried at once."""
    request = store_pb2.BatchSettleRequest()
    settlement = request.settlements.add().fail
    settlement.lease.CopyFrom(lease_of(claimed))
    settlement.delay.SetInParent()
    return request
