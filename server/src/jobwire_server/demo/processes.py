"""The demo's processes: a server on an engine of its own, and workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import indexer

START_SECONDS = 30.0
STOP_SECONDS = 10.0


class DemoError(Exception):
    """Why the demo cannot go on, in a line for people."""


@contextlib.contextmanager
def process(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this Python for the extent of the block; what it says goes to a file."""
    # Not the user's own settings: the demo must never touch a real engine.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBWIRE_")}
    with log.open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def server(folder: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A server on a free port, its engine's data in `folder`."""
    options = ("--listen", "127.0.0.1:0", "--data-dir", str(folder / "engine"), "--log-format", "json")
    return process(folder / "server.log", "-m", "jobwire_server", "serve", *options)


async def address(started: subprocess.Popen[bytes], folder: Path) -> str:
    """Where the server listens, once it says so."""
    log = folder / "server.log"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and started.poll() is None:
        for line in log.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if event.get("event") == "serving":
                    return str(event["address"])
        await asyncio.sleep(0.05)
    raise DemoError(f"the server did not start; it said:\n{log.read_text()}")


def worker(
    folder: Path, name: str, target: str, journal: Path, pause: float
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker process."""
    return process(folder / f"{name}.log", "-m", indexer.__name__, target, name, str(journal), str(pause))
