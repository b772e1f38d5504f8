"""Three ways to strike a process, each counted only if a write was in flight there at that moment."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from tests.faults.deployment import Deployment
from tests.faults.load import Attempt, Load
from tests.faults.processes import Server, WorkerProcess

KILLS = int(os.environ.get("JOBWIRE_TEST_KILLS") or 2)
"""How many of each kind have to land while a write is in flight: 30 in CI's step of its own, 200 by hand."""

# After a process was stopped, for the answers that it had sent already to be read.
_SETTLE_SECONDS = 0.03


class Kind(StrEnum):
    """What is done to the victim."""

    KILL = "kill -9"
    FREEZE = "SIGSTOP/SIGCONT"
    TERM = "SIGTERM, SIGKILL"


class Victim(ABC):
    """A process, and how to tell that a write is in flight there."""

    pid: int
    most_seconds = 0.1
    """Between SIGTERM and SIGKILL: after longer, nothing would be in flight any more."""

    @abstractmethod
    async def is_writing(self) -> bool:
        """Asked just after it was stopped: whether a write that began before has no answer, and gets none."""

    @abstractmethod
    def revive(self) -> None:
        """It is gone: something takes its place, now or soon."""


class WorkerVictim(Victim):
    """A worker writes as long as it has a job that is not settled."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.pid = worker.pid
        self._worker = worker

    async def is_writing(self) -> bool:
        return bool(self._worker.held())

    def revive(self) -> None:
        self._worker.kill()  # for the case that it outlived its grace; another is started by `Workers.kept_at`


class _CreateVictim(Victim):
    def __init__(self, load: Load) -> None:
        self._load = load

    def _concerns(self, attempt: Attempt) -> bool:
        raise NotImplementedError

    async def is_writing(self) -> bool:
        before: Sequence[Attempt] = [attempt for attempt in self._load.pending if self._concerns(attempt)]
        await asyncio.sleep(_SETTLE_SECONDS)
        return any(attempt.outcome is None for attempt in before)


class ServerVictim(_CreateVictim):
    """A server: Creates that were sent to it."""

    def __init__(self, server: Server, at: Deployment, load: Load, starting: asyncio.TaskGroup) -> None:
        super().__init__(load)
        self.pid = server.pid
        self._server = server
        self._index = at.servers.index(server)
        self._starting = starting

    def _concerns(self, attempt: Attempt) -> bool:
        return attempt.server == self._index

    def revive(self) -> None:
        self._server.kill()
        self._starting.create_task(self._server.start())


class EngineVictim(_CreateVictim):
    """The engine: Creates that were sent to any server."""

    most_seconds = 0.02

    def __init__(self, at: Deployment, load: Load) -> None:
        super().__init__(load)
        self.pid = at.engine.pid
        self._at = at

    def _concerns(self, attempt: Attempt) -> bool:
        return True

    def revive(self) -> None:
        self._at.engine.kill()
        self._at.engine.start()


class Tally:
    """Strikes, and how many of them count."""

    def __init__(self, victims: str) -> None:
        self.landed: Counter[Kind] = Counter()
        self._tried: Counter[Kind] = Counter()
        self._victims = victims

    def open(self) -> list[Kind]:
        """The kinds that have not landed often enough."""
        return [kind for kind in Kind if self.landed[kind] < KILLS]

    async def strike(self, kind: Kind, victim: Victim, rng: random.Random, freeze_seconds: float) -> None:
        """One. Where it would not count, kill -9 and SIGSTOP let the victim go on instead."""
        self._tried[kind] += 1
        if kind is Kind.TERM:
            os.kill(victim.pid, signal.SIGTERM)
            await asyncio.sleep(rng.uniform(0, victim.most_seconds))
            if is_running(victim.pid):
                os.kill(victim.pid, signal.SIGSTOP)
                self.landed[kind] += await victim.is_writing()
                os.kill(victim.pid, signal.SIGKILL)
            victim.revive()
            return
        os.kill(victim.pid, signal.SIGSTOP)
        if not await victim.is_writing():
            os.kill(victim.pid, signal.SIGCONT)
            await asyncio.sleep(rng.uniform(0, 0.02))
            return
        self.landed[kind] += 1
        if kind is Kind.KILL:
            os.kill(victim.pid, signal.SIGKILL)
            victim.revive()
        else:
            await asyncio.sleep(freeze_seconds)
            os.kill(victim.pid, signal.SIGCONT)

    def __str__(self) -> str:
        return f"{self._victims}: " + ", ".join(
            f"{kind} {self.landed[kind]} landed of {self._tried[kind]}" for kind in Kind
        )


def is_running(pid: int) -> bool:
    """Whether the child process has not ended (that nobody has asked yet how, does not make it run)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
