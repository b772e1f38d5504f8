"""Sharing a queue between tenants, and the place of what comes back."""

from __future__ import annotations

import itertools

import pytest
from jobwire.v1 import store_pb2

from tests.requests import fail, release, update

from .bench import Bench


class Submitter:
    """Adds jobs of several tenants to one partition, and says whose the claimed ones are."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ids = iter(bench.ids("j", 400))

    async def add(self, tenant: str, count: int = 1, priority: int = 0) -> list[str]:
        ids = list(itertools.islice(self._ids, count))
        for job_id in ids:
            await self._bench.add(job_id, "q", tenant=tenant, priority=priority)
        return ids

    async def next(self, count: int) -> str:
        """Whose jobs come, one letter each: all in one claim."""
        return "".join(claimed.job.tenant for claimed in await self._bench.claim("q", max_jobs=count))

    async def one_by_one(self, count: int) -> str:
        return "".join([await self.next(1) for _ in range(count)])


async def test_tenants_take_turns_whatever_their_backlog(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("a", 20)
    await submitter.add("b", 3)
    await submitter.add("c", 3)
    assert await submitter.one_by_one(4) == "abca"
    assert await submitter.next(12) == "bcabcaaaaaaa"


async def test_one_claim_and_many_claims_give_the_same_order(bench: Bench) -> None:
    submitter = Submitter(bench)
    orders = []
    for batch in (1, 5, 30):
        for tenant, count in (("c", 9), ("a", 2), ("b", 14)):
            await submitter.add(tenant, count)
        orders.append("".join([await submitter.next(batch) for _ in range(30 // batch)]))
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 25


async def test_an_idle_tenant_gains_no_credit(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("a", 40)
    await submitter.one_by_one(20)
    await submitter.add("b", 10)
    order = await submitter.one_by_one(10)
    assert order.count("b") in (5, 6)
    assert "bb" not in order


@pytest.mark.parametrize("lone", ["A", "z"], ids=["before the other", "after the other"])
async def test_a_one_at_a_time_tenant_does_not_starve_a_backlog(bench: Bench, lone: str) -> None:
    submitter = Submitter(bench)
    await submitter.add("b", 20)
    order = ""
    await submitter.add(lone)
    for _ in range(20):
        claimed = await submitter.next(1)
        order += claimed
        if claimed == lone:
            await submitter.add(lone)
    assert order.count("b") == order.count(lone) == 10


async def test_first_in_first_out_within_a_tenant(bench: Bench) -> None:
    submitter = Submitter(bench)
    a, b = await submitter.add("a", 3), await submitter.add("b", 3)
    assert await bench.claim_ids("q", max_jobs=6) == [a[0], b[0], a[1], b[1], a[2], b[2]]


async def test_priority_goes_before_fairness(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("b", 2)
    await submitter.add("a", 3, priority=1)
    assert await submitter.next(5) == "aaabb"


async def test_ties_go_by_the_tenants_bytes(bench: Bench) -> None:
    submitter = Submitter(bench)
    for tenant in ("ä", "b", "B", "", "\U0001f600", "\uffee"):
        await submitter.add(tenant)
    claimed = await bench.claim("q", max_jobs=9)
    assert [job.job.tenant for job in claimed] == ["", "B", "b", "ä", "\uffee", "\U0001f600"]


async def test_what_is_given_back_returns_to_its_place(bench: Bench) -> None:
    submitter = Submitter(bench)
    ids = await submitter.add("a", 4)
    first, second = await bench.claim("q", max_jobs=2)
    await bench.verbs.release(release(second))
    await bench.verbs.fail(fail(first))
    assert await bench.claim_ids("q", max_jobs=4) == ids


async def test_what_expires_returns_to_its_place(bench: Bench) -> None:
    submitter = Submitter(bench)
    ids = await submitter.add("a", 4)
    await bench.claim("q", max_jobs=2, lease=5)
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=4) == ids


async def test_what_returns_is_refunded(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("a", 5)
    await submitter.add("b", 5)
    for _ in range(3):
        claimed = await bench.take("q")
        assert claimed.job.tenant == "a"
        await bench.verbs.release(release(claimed))
    assert await submitter.next(10) == "ababababab"


async def test_the_last_job_of_a_tenant_is_refunded_too(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("b", 4)
    await submitter.add("a")
    claimed = await bench.take("q")
    assert claimed.job.tenant == "a"
    await bench.verbs.release(release(claimed))
    assert await submitter.next(5) == "abbbb"


async def test_a_delay_means_a_new_place(bench: Bench) -> None:
    submitter = Submitter(bench)
    ids = await submitter.add("a", 3)
    await bench.verbs.release(release(await bench.take("q"), delay=5))
    bench.clock.advance(5)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=3) == [ids[1], ids[2], ids[0]]


async def test_removed_jobs_cost_their_tenant_nothing(bench: Bench) -> None:
    submitter = Submitter(bench)
    ids = await submitter.add("a", 4)
    await submitter.add("b", 4)
    await bench.verbs.delete(store_pb2.DeleteRequest(id=ids[0]))
    await bench.verbs.cancel(store_pb2.CancelRequest(id=ids[1]))
    await bench.verbs.update(update(ids[2], delay=60))
    assert await submitter.next(9) == "abbbb"


async def test_a_new_priority_gains_no_credit(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("b", 4, priority=1)
    await submitter.add("c", 4, priority=1)
    for job_id in await submitter.add("c", 2):
        await bench.verbs.update(update(job_id, priority=1))
    assert await submitter.next(10) == "bcbcbcbccc"


async def test_what_becomes_due_gains_no_credit(bench: Bench) -> None:
    submitter = Submitter(bench)
    await submitter.add("b", 4)
    await submitter.add("c", 6)
    for job_id in bench.ids("late", 2):
        await bench.add(job_id, "q", tenant="c", delay=5)
    for job_id in bench.ids("sooner", 2):
        await bench.add(job_id, "q", tenant="c", delay=60)
        await bench.verbs.update(update(job_id, delay=0))
    bench.clock.advance(5)
    await bench.sweep()
    assert await submitter.next(14) == "bcbcbcbc" + "cccccc"


async def test_due_jobs_become_ready_in_the_order_of_their_times(bench: Bench) -> None:
    first, second, third = bench.ids("j", 3)
    await bench.add(first, "q", delay=9)
    await bench.add(second, "q", delay=3)
    await bench.add(third, "q", delay=6)
    bench.clock.advance(10)
    await bench.sweep()
    assert await bench.claim_ids("q", max_jobs=3) == [second, third, first]
