"""A TCP proxy between a client and its server that can be made to swallow what is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self


class Proxy:
    """Forwards until `freeze`; then connections that stand swallow everything, silently, until `thaw`."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._frozen: list[asyncio.Event] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.address = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, target: str) -> AsyncIterator[Self]:
        """A proxy of `target` for the extent of the context."""
        proxy = cls(target)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            for task in proxy._tasks:
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    def freeze(self, *, new_connections_flow: bool = False) -> None:
        """Holds back all bytes of the connections that stand, and of later ones too unless these may flow."""
        self._flowing.clear()
        self._frozen.append(self._flowing)
        if new_connections_flow:
            self._flowing = asyncio.Event()
            self._flowing.set()

    def thaw(self) -> None:
        """Lets everything through again, what was held back first."""
        for flowing in self._frozen:
            flowing.set()
        self._frozen.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        flowing = self._flowing
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink, flowing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
        try:
            while data := await source.read(65_536):
                await flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # the other end went away: so does this one
        finally:
            sink.close()
