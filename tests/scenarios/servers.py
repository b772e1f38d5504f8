"""Servers, in this process and as processes of their own, for the scenarios of workers, streams and the wire."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import jobwire
import pytest
from jobwire_server.app import Server, running
from jobwire_server.settings import Settings
from jobwire_server.store.base import Store
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.redis import RedisStore

from tests.engines import ENGINE, Engine

COMMAND = str(Path(sys.executable).with_name("jobwire"))
ROOT = Path(__file__).parents[2]


class Jobs:
    """An empty store of some sort, and as many servers over it as a test starts."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._first = MemoryStore(sweep_interval_ms=0)

    async def open(self) -> Store:
        """A store object of one more replica."""
        if self._engine is None:
            return self._first.sibling("")
        return await RedisStore.connect(self._engine.url)

    @contextlib.asynccontextmanager
    async def server(self, address: str = "127.0.0.1:0", *, drain_grace: float = 5.0) -> AsyncIterator[Server]:
        """A server for the extent of the context."""
        store = await self.open()
        try:
            async with running(store, address=address, settings=Settings(drain_grace=drain_grace)) as server:
                yield server
        finally:
            await store.close()


@pytest.fixture(params=["memory", ENGINE])
async def jobs(request: pytest.FixtureRequest) -> AsyncIterator[Jobs]:
    """In memory and in a real engine."""
    engine: Engine | None = None
    if request.param != "memory":
        engine = request.getfixturevalue("engine")
        await engine.flush()
    yield Jobs(engine)
    if engine is not None:
        assert await engine.keys_without_ttl() == []


@pytest.fixture
async def address(jobs: Jobs) -> AsyncIterator[str]:
    """Of one server over `jobs`."""
    async with jobs.server() as server:
        yield server.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[jobwire.Client]:
    """A client of that server."""
    async with jobwire.connect(address) as client:
        yield client


class ServerProcess:
    """`jobwire serve` on a free port, its words kept."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.address = ""
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def log(self) -> str:
        """Everything that it said so far."""
        return self._log.read_text()

    def resident_bytes(self) -> int:
        """Its memory."""
        return resident_bytes(self.pid)

    async def until_serving(self) -> None:
        """Returns when it serves."""
        async with asyncio.timeout(30):
            while not (found := re.search(r'"event": "serving"', self.log())):
                assert self.process.returncode is None, self.log()
                await asyncio.sleep(0.01)
        line = next(line for line in self.log().splitlines() if found.group() in line)
        self.address = re.search(r'"address": "([^"]+)"', line)[1]  # type: ignore[index]


@contextlib.asynccontextmanager
async def server_process(store_url: str, log: Path, *flags: str) -> AsyncIterator[ServerProcess]:
    """A server process that serves, killed at the end if it still runs."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "serve", "--log-format", "json", "--store-url", store_url, "--listen", "127.0.0.1:0", *flags),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
        )
    server = ServerProcess(process, log)
    try:
        await server.until_serving()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def resident_bytes(pid: int) -> int:
    """A process's memory, by the system's own accounting."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
