"""Servers and workers as processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import redis

from tests.faults import worker
from tests.history.recorder import Call, Event, Journal, Outcome
from tests.wait import wait_until

COMMAND = str(Path(sys.executable).with_name("jobwire"))
# Below what the system hands out to outgoing connections: a port must stay ours while its server is restarted.
_PORTS = range(10_000, 32_000)


class Server:
    """`jobwire serve`, restarted on the same port with the same flags. Without a store, on an embedded engine whose
    every write reaches the disk.
    """

    def __init__(self, folder: Path, port: int, *flags: str, store_url: str = "") -> None:
        self.address = f"127.0.0.1:{port}"
        self.data_dir = folder / "engine"
        self._flags = (*flags, "--listen", self.address)
        if store_url:
            self._flags += ("--store-url", store_url)
        else:
            self._flags += ("--store-url", f"embedded://{self.data_dir}", "--fsync", "always")
        self._log = folder / f"server-{port}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.is_serving = False
        """It has started, and nobody has asked it to end."""

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it serves."""
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - takes no time
                [COMMAND, "serve", "--log-format", "json", *self._flags], stderr=log
            )
        await wait_until(lambda: "serving" in self._events(), 30)
        self.is_serving = True

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self.is_serving = False
        self._process.kill()
        self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; its exit code, when it has drained."""
        self.is_serving = False
        self.send_signal(signal.SIGTERM)
        await wait_until(self.has_ended, 60)
        assert self._process is not None
        return self._process.wait()

    def engine(self) -> redis.Redis:
        """Raw access to its embedded engine."""
        return redis.Redis(unix_socket_path=str(self.data_dir / "engine.sock"), protocol=2)

    def engine_pid(self) -> int:
        """The embedded engine's process."""
        with self.engine() as client:
            return int(client.info("server")["process_id"])

    def bugs(self) -> list[str]:
        """What it logged as nobody's expectation, since its last start."""
        return [line for line in self._log.read_text().splitlines() if '"event": "bug"' in line]

    def _events(self) -> set[str]:
        assert not self.has_ended(), self._log.read_text()
        lines = (line for line in self._log.read_text().splitlines() if line.endswith("}"))
        return {json.loads(line)["event"] for line in lines}


class WorkerProcess:
    """One worker process, and what it has recorded."""

    def __init__(self, process: subprocess.Popen[bytes], journal: Path) -> None:
        self.process = process
        self._journal = Journal(journal)
        self._held: dict[str, str] = {}
        self.completed: set[str] = set()
        """The jobs whose completion was accepted."""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def events(self) -> list[Event]:
        """Everything that it recorded."""
        self.follow()
        return self._journal.events

    def held(self) -> set[str]:
        """The jobs whose handlers run, or whose settlements are on their way."""
        self.follow()
        return set(self._held.values())

    def follow(self) -> None:
        """Reads what is new."""
        for event in self._journal.follow():
            if event.call is Call.DELIVERED:
                self._held[event.token] = event.job
            elif event.call is not Call.HEARTBEAT and event.outcome is not Outcome.SENT:
                self._held.pop(event.token, None)
                if event.call is Call.COMPLETE and event.outcome is Outcome.OK:
                    self.completed.add(event.job)


class Workers:
    """Worker processes and what they recorded. Each of their jobs takes `pause` seconds."""

    def __init__(
        self,
        folder: Path,
        target: str,
        pause: float,
        stack: ExitStack,
        *,
        lease: float = worker.LEASE_SECONDS,
        concurrency: int = 8,
    ) -> None:
        self.processes: dict[str, WorkerProcess] = {}
        self.target = target
        self._settings = [str(pause), str(lease), str(concurrency)]
        self._folder = folder
        self._stack = stack

    def start(self, name: str) -> WorkerProcess:
        """One more."""
        path = self._folder / f"{name}.history"
        command = [sys.executable, "-m", worker.__name__, self.target, name, str(path), *self._settings]
        started = WorkerProcess(subprocess.Popen(command), path)
        self._stack.callback(started.kill)
        self.processes[name] = started
        return started

    def start_another(self) -> WorkerProcess:
        """One more, under a name of its own."""
        return self.start(f"w{len(self.processes) + 1}")

    @asynccontextmanager
    async def kept_at(self, count: int) -> AsyncIterator[None]:
        """Whenever one dies, another is started, for the extent of the context."""

        async def supervise() -> None:
            while True:
                for _ in range(count - len(self.living())):
                    self.start_another()
                await asyncio.sleep(0.02)

        task = asyncio.create_task(supervise())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def living(self) -> list[WorkerProcess]:
        """Those that run."""
        return [process for process in self.processes.values() if not process.has_ended()]

    async def kill(self, name: str) -> set[str]:
        """kill -9 while it holds jobs, which it answers. It is stopped while we look, lest it finish in between."""
        process = self.processes[name]
        while True:
            process.send_signal(signal.SIGSTOP)
            if held := process.held():
                process.kill()
                return held
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.01)

    def events(self) -> list[Event]:
        """Everything that all of them recorded."""
        return sorted(
            (event for process in self.processes.values() for event in process.events()), key=lambda event: event.ended
        )

    def completed(self) -> set[str]:
        """The jobs whose completion was accepted."""
        for process in self.processes.values():
            process.follow()
        return set().union(*(process.completed for process in self.processes.values()))


def free_port() -> int:
    """A port that nobody has just now."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


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
            if not server.has_ended():
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
