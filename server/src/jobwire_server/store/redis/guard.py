"""The guard of the embedded engine: starts it, restarts it when it dies alone, ends it when the server is gone.

A program of its own, started by `embedded.py`, with nothing but the standard library, so that it is up within a few
milliseconds. Its standard input is one end of a socket pair whose other end only the server holds: however the server
dies, the guard reads an end of file. Its output, and the engine's, is the engine's log. To the server it reports, a
line each:

    in-use <pid>     another server's engine may still be writing here; the guard ends
    started <pid>    the engine's process
    ended <how>      it died, or could not be started; it is started again after a short pause
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

# The engine has this long to end in good order. What it acknowledged is in the operating system's hands by then, so
# nothing is lost by killing it; and it must be gone within 2 s of its server.
STOP_SECONDS = 1.0

# Longer than a predecessor's engine may need to end, so that a server may be started right after one was killed.
LOCK_SECONDS = 3.0

RESTART_PAUSE_SECONDS = 0.5

_PR_SET_PDEATHSIG = 1


class Guard:
    """Keeps one engine running for as long as the server holds its end of `channel`."""

    def __init__(self, channel: socket.socket, lock: BinaryIO, command: Sequence[str]) -> None:
        self._channel = channel
        self._lock = lock
        self._command = command
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler of our own nothing is written to the pipe

    def run(self) -> None:
        """Returns when the server is gone and so is the engine."""
        while True:
            try:
                engine = self._start()
            except OSError as error:
                report(self._channel, f"ended {self._command[0]}: {error.strerror}")
            else:
                report(self._channel, f"started {engine.pid}")
                if self._server_goes_before(engine):
                    end(engine)
                    return
                report(self._channel, f"ended {how(engine.returncode)}")
            if readable(self._channel, RESTART_PAUSE_SECONDS):
                return

    def _start(self) -> subprocess.Popen[bytes]:
        guard = os.getpid()
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            # The engine inherits the lock: the directory is in use for as long as it may be writing, come what may.
            pass_fds=[self._lock.fileno()],
            preexec_fn=lambda: die_with(guard),  # noqa: PLW1509 - this process has one thread
        )

    def _server_goes_before(self, engine: subprocess.Popen[bytes]) -> bool:
        while engine.poll() is None:
            ready, _, _ = select.select([self._channel.fileno(), self._wake], [], [])
            if self._channel.fileno() in ready:
                return True
            os.read(self._wake, 64)
        return False


def die_with(guard: int) -> None:
    """Where the system can (Linux), the engine is killed when the guard itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before that took effect
            os._exit(1)


def end(engine: subprocess.Popen[bytes]) -> None:
    """Asks the engine to end, then makes it."""
    engine.terminate()
    try:
        engine.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def how(returncode: int) -> str:
    """How a process ended, for people."""
    return f"by signal {-returncode}" if returncode < 0 else f"with exit code {returncode}"


def readable(channel: socket.socket, seconds: float) -> bool:
    """Waits; true means the server is gone, for it never writes."""
    return bool(select.select([channel], [], [], seconds)[0])


def report(channel: socket.socket, line: str) -> None:
    """Tells the server. If it is gone, the next look at the channel finds out."""
    with contextlib.suppress(OSError):
        channel.sendall(line.encode() + b"\n")


def locked(lock: BinaryIO, channel: socket.socket) -> bool:
    """Takes the directory's lock and writes the server's pid into it; tells whether that worked."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline or readable(channel, 0.05):
                return False
        else:
            lock.truncate(0)
            lock.write(str(os.getppid()).encode())
            lock.flush()
            return True


def main(lock_path: str, socket_path: str, *command: str) -> None:
    """Runs as a program."""
    os.umask(0o077)
    # A terminal's Ctrl-C or a service manager's stop reaches every process; the engine must outlive the server's drain.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=sys.stdin.fileno())
    with open(lock_path, "a+b") as lock:
        if not locked(lock, channel):
            lock.seek(0)
            report(channel, f"in-use {lock.read().decode()}")
            return
        Guard(channel, lock, command).run()
        place = Path(socket_path)
        place.unlink(missing_ok=True)
        if place.parent != Path(lock_path).parent:
            place.parent.rmdir()  # made for this socket alone


if __name__ == "__main__":
    main(*sys.argv[1:])
