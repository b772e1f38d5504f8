"""The same calls, clock steps and damage, drawn at random, for the engine's scripts and for the rules in plain Python.

Both stores get the same clock, and draw the same ids, tokens and nonces, so that answers can be compared whole; at rest
every record and every index is compared too. Legitimate differences: how ReclaimStale is paged; and
between the loss of a record and its repair, statistics and what an index still says of it.

A failure prints how to play it again. `JOBWIRE_TEST_EXAMPLES=1000 pytest tests/machine --hypothesis-seed=7` plays more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from jobwire_server.store.draw import SeededDraw
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

from tests.clock import Clock
from tests.conformance.backends import lose_from_engine, lose_from_memory
from tests.engines import Engine

from . import damage, snapshot, steps
from .player import Player

EXAMPLES = int(os.environ.get("JOBWIRE_TEST_EXAMPLES", "50"))
"""Histories of each kind; set it to thousands after a change of a rule."""

INDEX = st.integers(0, 30)


class Machine(RuleBasedStateMachine):
    """Two stores that must not differ."""

    engine: ClassVar[Engine]
    partitions: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.lost = False
        """Whether a record was lost, or an index damaged, that no repair has seen yet."""

    @initialize()
    def open(self) -> None:
        self.runner.run(self._open())

    async def _open(self) -> None:
        await self.engine.flush()
        own: dict[str, Any] = {"clock": self.clock, "partitions": self.partitions, "replica": "one"}
        self.memory = MemoryStore(draw=SeededDraw(1), sweep_interval_ms=0, **own)
        self.redis = await RedisStore.connect(self.engine.url, draw=SeededDraw(1), sweep_interval_ms=0, **own)
        self.players = Player(self.memory, self.clock), Player(self.redis, self.clock)
        self.client = self.engine.client()

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            self.runner.close()
            return  # it did not open
        try:
            for name, args in (("read", None), ("advance", 10_000), ("sweep", None), ("read", None)):
                self.play(name, args)
            self.repair()
            assert self.runner.run(self.engine.keys_without_ttl()) == []
        finally:
            self.runner.run(self._close())
            self.runner.close()

    async def _close(self) -> None:
        await self.client.aclose()
        await self.redis.close()

    def play(self, name: str, args: Any) -> None:
        """A step on both."""
        if name == "advance":
            self.clock.advance(ms=args)
            return
        for player in self.players:
            player.lost = self.lost
        expected, found = [self.runner.run(player.play((name, args))) for player in self.players]
        assert found == expected, (name, args)

    def compare(self) -> None:
        """Every record, every index."""
        found = self.runner.run(snapshot.of_engine(self.client, self.clock.now_ms))
        expected = snapshot.of_memory(self.memory, self.clock.now_ms)
        for name in snapshot.Snapshot._fields:
            assert getattr(found, name) == getattr(expected, name), name
        assert self.runner.run(damage.agrees(self.redis))
        assert self.runner.run(damage.agrees(self.memory))

    @rule()
    def repair(self) -> None:
        """Afterwards both are at rest, whatever was lost before."""
        for store in (self.memory, self.redis):
            mended = self.runner.run(damage.repair(store))
            assert self.lost or not mended, mended
        self.lost = False
        self.compare()

    @rule(job_id=steps.IDS)
    def lose(self, job_id: str) -> None:
        lost = lose_from_memory(self.memory, "default", [job_id])
        assert self.runner.run(lose_from_engine(self.engine, self.partitions, "default", [job_id])) == lost
        self.lost = self.lost or lost > 0

    @precondition(lambda self: not self.lost)
    @rule(how=st.sampled_from(["key", "key", "member", "stray", "blank", "ttl"]), which=INDEX, index=INDEX)
    def damage(self, how: str, which: int, index: int) -> None:
        """Mended at once: what it does to answers in between depends on the engine's structures."""
        self.runner.run(self._damage(how, which, index))
        self.lost = True
        self.repair()

    async def _damage(self, how: str, which: int, index: int) -> None:
        sorts = {"key": damage.WHOLE, "ttl": ("job",)}.get(how, damage.SORTED_SETS)
        keys = await damage.keys_of(self.client, sorts)
        if how == "blank":
            await damage.add_blank(self.client, which % self.partitions)
        elif not keys:
            return
        elif how == "key":
            await damage.drop_key(self.client, self.memory, keys[which % len(keys)])
        elif how == "member":
            await damage.drop_member(self.client, self.memory, keys[which % len(keys)], index)
        elif how == "stray":
            if damage.sort_of(keys[which % len(keys)]) != "debts":
                await damage.add_stray(self.client, keys[which % len(keys)], index)
        else:
            await self.client.persist(keys[which % len(keys)])


def _rules(weights: dict[str, int]) -> dict[str, Any]:
    """A rule per verb; a weight of two makes it come twice as often."""

    def made(name: str) -> Any:
        def play(self: Machine, args: Any) -> None:
            self.play(name, args)

        play.__name__ = name  # what a failing history shows
        return rule(args=steps.STEPS[name])(play)

    return {f"{name}_{number}": made(name) for name, weight in weights.items() for number in range(weight)}


# All verbs.
Broad = type(
    "Broad",
    (Machine,),
    _rules({**dict.fromkeys(steps.STEPS, 1), "create": 4, "claim": 2, "settle": 2, "advance": 2, "share": 0}),
)
# Few sorts of calls, to look closely at lines and rings.
Sharing = type(
    "Sharing",
    (Machine,),
    _rules({"share": 4, "claim": 2, "settle": 1, "advance": 1, "sweep": 1, "delete": 1, "update": 1, "hand_off": 1}),
)


@pytest.fixture
def at(engine: Engine) -> Iterator[None]:
    Machine.engine = engine
    yield
    del Machine.engine


@pytest.mark.timeout(900)  # a failing history is made small first, which takes minutes
@pytest.mark.usefixtures("at")
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(("machine", "length"), [(Broad, 50), (Sharing, 80), (Broad, 25)])
def test_both_backends_agree(machine: type[Machine], length: int, partitions: int) -> None:
    machine.partitions = partitions
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=length,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
