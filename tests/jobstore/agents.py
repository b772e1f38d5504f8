"""The example agent as replicas: real uvicorn processes, and a client that asks them in turn."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.engines import Process, durable_engine
from tests.faults.processes import Server, free_port
from tests.wait import wait_until

APP = Path(__file__).parents[2] / "examples" / "agent"


@dataclass
class Reply:
    """An answer over HTTP."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def etag(self) -> str:
        """As it stands in the header, with its quotes."""
        return self.headers["etag"]


class Replica:
    """One process of the agent."""

    def __init__(self, folder: Path, store_url: str) -> None:
        self.port = free_port()
        self._log = folder / f"replica-{self.port}.log"
        environment = {
            **os.environ,
            "JOB_STORE_URL": store_url,
            "OTEL_SERVICE_NAME": "scan-agent",
            "PYTHONWARNINGS": "default",
        }
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(APP), "app:app", "--host", "127.0.0.1"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=log, stderr=log, env=environment
            )

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    async def started(self) -> None:
        """Returns when it serves."""
        await wait_until(lambda: "Uvicorn running" in self.log or self._process.poll() is not None, 30)
        assert self._process.poll() is None, self.log

    async def ended(self) -> int:
        """Its exit code, when it has ended by itself."""
        return await asyncio.to_thread(self._process.wait, 30)

    def kill(self) -> None:
        """kill -9. Returns when it is gone."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    async def ask(self, method: str, path: str, body: object = None, *, if_match: str = "") -> Reply:
        """One request on a connection of its own. Raises ConnectionError if nobody is there."""
        return await asyncio.to_thread(self._ask, method, path, body, if_match)

    def _ask(self, method: str, path: str, body: object, if_match: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"If-Match": if_match} if if_match else {})
            answer = connection.getresponse()
            content = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, json.loads(content) if is_json else content, headers)
        finally:
            connection.close()


class Agent:
    """Its replicas behind one name, as behind a service: requests go to them in turn, and past one that is gone."""

    def __init__(self, replicas: list[Replica], engine: Process | None, server: Server | None) -> None:
        self.replicas = replicas
        self.engine = engine
        self.server = server
        self._turns = cycle(replicas)

    async def ask(self, method: str, path: str, body: object = None, *, if_match: str = "") -> Reply:
        """The reply of the next replica that is there."""
        for _ in self.replicas:
            try:
                return await next(self._turns).ask(method, path, body, if_match=if_match)
            except ConnectionRefusedError:
                continue
        raise AssertionError("no replica is left")

    async def until(self, path: str, status: str) -> Reply:
        """The scan once it is in that state."""
        seen: list[Reply] = []

        async def is_there() -> bool:
            seen[:] = [await self.ask("GET", path)]
            return bool(seen[0].status == 200 and seen[0].body["status"] == status)

        await wait_until(is_there)
        return seen[0]

    async def until_found(self, path: str, count: int) -> Reply:
        """The scan once it has looked at so many targets."""
        seen: list[Reply] = []

        async def is_there() -> bool:
            seen[:] = [await self.ask("GET", path)]
            return len(seen[0].body["payload"]["found"]) >= count

        await wait_until(is_there)
        return seen[0]


@asynccontextmanager
async def running_agent(backend: str, replicas: int = 2) -> AsyncIterator[Agent]:
    """The agent on "memory", "redis" (by TCP), "unix" (a socket) or "grpc" (a jobwire server), all of it its own."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobwire-")))
        engine, server, url = None, None, "memory://"
        if backend != "memory":
            engine = stack.enter_context(durable_engine())
            url = engine.url if backend == "unix" else engine.tcp_url
        if backend == "grpc":
            server = Server(folder, free_port(), store_url=url)
            stack.callback(_end, server)
            await server.start()
            url = f"grpc://{server.address}"
        started = []
        for _ in range(replicas):
            started.append(Replica(folder, url))
            stack.callback(started[-1].kill)
        await asyncio.gather(*(replica.started() for replica in started))
        yield Agent(started, engine, server)


def _end(server: Server) -> None:
    if not server.has_ended():
        server.kill()
