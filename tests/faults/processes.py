"""Servers, workers and engines as processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from tests.faults import worker
from tests.history.recorder import Call, Event, Outcome, read
from tests.wait import wait_until

COMMAND = str(Path(sys.executable).with_name("jobwire"))


class Server:
    """`jobwire serve` on an embedded engine whose every write reaches the disk, restarted on the same port and data."""

    def __init__(self, folder: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.data_dir = folder / "engine"
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it serves."""
        flags = ["--store-url", f"embedded://{self.data_dir}", "--fsync", "always", "--listen", self.address]
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - takes no time
                [COMMAND, "serve", "--log-format", "json", *flags], stderr=log
            )
        await wait_until(lambda: "serving" in self._events(), 30)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def engine(self) -> redis.Redis:
        """Raw access to its engine."""
        return redis.Redis(unix_socket_path=str(self.data_dir / "engine.sock"), protocol=2)

    def engine_pid(self) -> int:
        """The engine's process."""
        with self.engine() as client:
            return int(client.info("server")["process_id"])

    def _events(self) -> set[str]:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        lines = (line for line in self._log.read_text().splitlines() if line.endswith("}"))
        return {json.loads(line)["event"] for line in lines}


class Workers:
    """Worker processes and what they recorded."""

    def __init__(self, folder: Path, address: str, pause: float, stack: ExitStack) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._address = address
        self._pause = pause
        self._stack = stack

    def start(self, name: str) -> None:
        """One more."""
        command = [sys.executable, "-m", worker.__name__, self._address, name, str(self._path(name)), str(self._pause)]
        process = subprocess.Popen(command)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self.processes[name] = process

    async def kill(self, name: str) -> set[str]:
        """kill -9 while it holds jobs, which it answers. It is stopped while we look, lest it finish in between."""
        process = self.processes[name]
        while True:
            process.send_signal(signal.SIGSTOP)
            if held := self._held(name):
                process.kill()
                process.wait()
                return held
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.01)

    def events(self) -> list[Event]:
        """Everything that all of them recorded."""
        return read(self._path(name) for name in self.processes)

    def completed(self) -> set[str]:
        """The jobs whose completion was accepted."""
        return {event.job for event in self.events() if event.call is Call.COMPLETE and event.outcome is Outcome.OK}

    def _held(self, name: str) -> set[str]:
        events = read([self._path(name)])
        settled = {event.token for event in events if event.call is not Call.DELIVERED}
        return {event.job for event in events if event.token not in settled}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.history"


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def processes(*, pause: float = 0) -> Iterator[tuple[Server, Workers]]:
    """A server, not started, and room for workers whose jobs each take `pause` seconds; all killed at the end."""
    with ExitStack() as stack:
        # Not below pytest's own folder: the engine's socket needs a short path.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobwire-")))
        server = Server(folder, free_port())
        workers = Workers(folder, server.address, pause, stack)
        try:
            yield server, workers
        finally:
            if server._process is not None and server._process.poll() is None:
                server.kill()


async def gone(pid: int) -> None:
    """Returns once no process has this pid."""

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await wait_until(is_gone)


async def cpu_seconds(*pids: int) -> float:
    """Processor time that the processes used so far, by the system's own accounting."""
    ticks = 0
    for pid in pids:
        fields = await asyncio.to_thread(Path(f"/proc/{pid}/stat").read_text)
        ticks += sum(map(int, fields.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
