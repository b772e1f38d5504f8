"""Connections that are slow, silent, cut, reset, or lose answers, between each two kinds of process, while jobs are
submitted and done: every rule holds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from enum import StrEnum

import pytest

from tests.faults.conftest import Tell
from tests.faults.deployment import deployment, loaded, seeded
from tests.faults.strikes import KILLS
from tests.proxy import Proxy, Way
from tests.wait import wait_until

LEASE_SECONDS = 1.0
JOBS_PER_SECOND = 60
TIMEOUT = 120 + 5 * KILLS * 6


class Fault(StrEnum):
    """What is done to a link, for a moment."""

    DELAY = "delayed"
    BLACKHOLE = "blackholed"
    CUT = "cut"
    RESET = "reset"
    LOSE = "answers lost"


class Link(StrEnum):
    """Which connections."""

    SUBMITTERS = "submitters to servers"
    WORKERS = "workers to servers"
    ENGINE = "servers to engine"


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("link", Link, ids=lambda link: link.replace(" ", "-"))
async def test_links_fail_and_every_rule_holds(link: Link, tell: Tell) -> None:
    rng = seeded()
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(deployment(2, 0, lease=LEASE_SECONDS, proxied_engine=link is Link.ENGINE))
        proxies = at.proxies
        if link is not Link.ENGINE:
            proxies = [await stack.enter_async_context(Proxy.before(server.address)) for server in at.servers]
        ways = [proxy.address for proxy in proxies]
        for _ in range(2):
            if link is Link.WORKERS:
                at.workers.target = "ipv4:" + ",".join(ways)
                ways.reverse()  # each prefers another server
            at.workers.start_another()
        through = ways if link is Link.SUBMITTERS else [server.address for server in at.servers]
        async with loaded(at, JOBS_PER_SECOND, rng, through=through) as load:
            faults = list(Fault) * KILLS
            rng.shuffle(faults)
            for fault in faults:
                await harm(proxies, fault, rng)
                if link is not Link.WORKERS:
                    await load.progress()
        line = await at.finish(load.acknowledged)
    lost = sum(proxy.lost_replies for proxy in proxies)
    tell(f"{link}: each of {', '.join(Fault)} {KILLS} times, {lost} answers lost; {line}")


async def harm(proxies: Sequence[Proxy], fault: Fault, rng: random.Random) -> None:
    """One fault of one of the links that are in use, and its end. Long ones are sometimes longer than a lease."""
    await wait_until(lambda: any(proxy.open_connections for proxy in proxies))
    proxy = rng.choice([proxy for proxy in proxies if proxy.open_connections])
    match fault:
        case Fault.DELAY:
            proxy.delay_seconds = rng.uniform(0.01, 0.2)
            await asyncio.sleep(rng.uniform(0.5, 1))
            proxy.delay_seconds = 0
        case Fault.BLACKHOLE:
            proxy.freeze(rng.choice([Way.REQUESTS, Way.REPLIES, Way.BOTH]))
            await asyncio.sleep(rng.uniform(0.2, 1.5 * LEASE_SECONDS))
            proxy.thaw()
        case Fault.CUT:
            proxy.cut()
        case Fault.RESET:
            proxy.reset()
        case Fault.LOSE:
            before = sum(one.lost_replies for one in proxies)
            for one in proxies:
                one.lose_replies(each=rng.randint(1, 5))
            await wait_until(lambda: sum(one.lost_replies for one in proxies) > before)
            await asyncio.sleep(rng.uniform(0, 0.3))
            for one in proxies:
                one.keep_replies()
