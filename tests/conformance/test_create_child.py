"""Create under a parent."""

from __future__ import annotations

from jobwire.v1 import job_pb2, store_pb2

from tests.requests import CANCELLED, FAILED, SUCCEEDED, complete, create, fail, release

from .bench import Bench, refusal


async def test_children_count_at_their_parent_without_a_new_version(bench: Bench) -> None:
    parent = await bench.add("p", "q")
    await bench.add("p/a", "c", parent_id="p")
    drawn = await bench.add(queue="c", parent_id="p")
    assert drawn.id.startswith("p/")
    assert drawn.id.count("/") == 1
    job = await bench.job("p")
    assert job.child_counts == job_pb2.ChildCounts(total=2)
    assert (job.version, job.etag) == (parent.version, parent.etag)
    assert (await bench.job("p/a")).parent_id == "p"


async def test_ended_children_are_counted_by_status(bench: Bench) -> None:
    await bench.add("p")
    for name in ("p/a", "p/b"):
        await bench.add(name, "c", parent_id="p", max_attempts=1)
    await bench.add("p/c", "other", parent_id="p")
    await bench.add("p/d", parent_id="p", status=SUCCEEDED)
    await bench.verbs.complete(complete(await bench.take("c")))
    await bench.verbs.fail(fail(await bench.take("c")))
    await bench.verbs.cancel(store_pb2.CancelRequest(id="p/c"))
    counts = (await bench.job("p")).child_counts
    assert counts == job_pb2.ChildCounts(total=4, succeeded=2, failed=1, cancelled=1)


async def test_state_only_child_moves_its_parents_counts(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", parent_id="p")
    for status in (SUCCEEDED, FAILED, CANCELLED):
        await bench.verbs.update(store_pb2.UpdateRequest(id="p/a", status=status))
    assert (await bench.job("p")).child_counts == job_pb2.ChildCounts(total=1, cancelled=1)
    await bench.verbs.update(store_pb2.UpdateRequest(id="p/a", status=job_pb2.JOB_STATUS_RUNNING))
    assert (await bench.job("p")).child_counts == job_pb2.ChildCounts(total=1)


async def test_deleted_children_do_not_count_expired_ones_do(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/a", parent_id="p", status=SUCCEEDED)
    await bench.add("p/b", parent_id="p", status=FAILED, ttl=5)
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p/a"))
    bench.clock.advance(5)
    await bench.sweep()
    assert (await bench.job("p")).child_counts == job_pb2.ChildCounts(total=1, failed=1)


async def test_parent_must_exist(bench: Bench) -> None:
    await bench.add("gone", ttl=5)
    bench.clock.advance(5)
    for parent_id in ("never", "gone"):
        error = await refusal(bench.verbs.create(create(f"{parent_id}/a", "q", parent_id=parent_id)))
        assert error.reason == job_pb2.ERROR_REASON_PARENT_NOT_FOUND
        assert error.metadata == {"id": parent_id}
    await bench.add("here", namespace="other")
    error = await refusal(bench.verbs.create(create("here/a", "q", parent_id="here")))
    assert error.reason == job_pb2.ERROR_REASON_PARENT_NOT_FOUND


async def test_an_id_with_levels_needs_no_parent(bench: Bench) -> None:
    job = await bench.add("a/b/c", "q")
    assert job.parent_id == ""
    assert await bench.claim_ids("q") == ["a/b/c"]


async def test_parent_token_fences_the_creation(bench: Bench) -> None:
    await bench.add("p", "q")
    claimed = await bench.take("q")
    await bench.verbs.create(create("p/a", "c", parent_id="p", parent_token=claimed.lease_token))
    await bench.verbs.release(release(claimed))
    again = await bench.take("q")
    assert again.lease_token != claimed.lease_token
    for token in (claimed.lease_token, "made-up"):
        error = await refusal(bench.verbs.create(create("p/b", "c", parent_id="p", parent_token=token)))
        assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST
    assert not await bench.exists("p/b")
    assert (await bench.job("p")).child_counts.total == 1


async def test_parent_token_of_a_job_nobody_runs_is_lost(bench: Bench) -> None:
    await bench.add("p", "q")
    await bench.add("s", status=job_pb2.JOB_STATUS_RUNNING)
    for parent_id in ("p", "s"):
        error = await refusal(bench.verbs.create(create(f"{parent_id}/a", parent_id=parent_id, parent_token="t")))
        assert error.reason == job_pb2.ERROR_REASON_LEASE_LOST


async def test_a_parent_made_anew_counts_its_own_children_only(bench: Bench) -> None:
    await bench.add("p")
    await bench.add("p/ended", parent_id="p", status=SUCCEEDED)
    await bench.add("p/live", "q", parent_id="p")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p"))
    await bench.add("p")
    await bench.add("p/own", parent_id="p")
    await bench.verbs.delete(store_pb2.DeleteRequest(id="p/ended"))
    await bench.verbs.complete(complete(await bench.take("q")))
    assert (await bench.job("p")).child_counts == job_pb2.ChildCounts(total=1)
