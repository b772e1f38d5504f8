"""A TCP proxy of our own, to put faults between any two: client and server, or server and engine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from enum import Flag, auto
from typing import Self


class Way(Flag):
    """The direction of bytes."""

    REQUESTS = auto()
    """Towards the target."""
    REPLIES = auto()
    """From the target."""
    BOTH = REQUESTS | REPLIES


class Proxy:
    """Forwards bytes, and does harm when told to. The target is "host:port" or the path of a unix socket."""

    def __init__(self, target: str) -> None:
        self.target = target
        """May be changed: new connections go to the new one."""
        self.address = ""
        self.connections = 0
        """How many there were so far."""
        self.delay_seconds = 0.0
        """Added to each direction's every chunk."""
        self.refusing = False
        """New connections are closed at once."""
        self.lost_replies = 0
        """How many requests went through whose replies did not."""
        self._links: set[_Link] = set()
        self._gates = {way: _open_gate() for way in (Way.REQUESTS, Way.REPLIES)}
        self._losing: bytes | None = None
        self._lose_each = 0
        self._matched = 0

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
            tasks = [task for link in proxy._links for task in link.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def open_connections(self) -> int:
        """How many stand now."""
        return len(self._links)

    def freeze(self, way: Way = Way.BOTH, *, new_connections_flow: bool = False) -> None:
        """A black hole: holds back all bytes, of later connections too unless these may flow. No FIN, no RST."""
        for one in way:
            self._gates[one].clear()
            for link in self._links:
                link.gates[one].clear()
            if new_connections_flow:
                self._gates[one] = _open_gate()

    def thaw(self) -> None:
        """Lets everything through again, what was held back first."""
        for gates in (self._gates, *(link.gates for link in self._links)):
            for gate in gates.values():
                gate.set()

    def cut(self) -> int:
        """Closes every connection that stands, properly. How many there were."""
        return self._end(lambda link: link.cut())

    def reset(self) -> int:
        """The same with a RST at both ends, as from a host that has crashed and come back."""
        return self._end(lambda link: link.reset())

    def lose_replies(self, matching: bytes = b"", each: int = 1) -> None:
        """Each `each`-th request that holds `matching` goes through, but its connection is reset before the reply."""
        self._losing, self._lose_each, self._matched = matching, each, 0

    def keep_replies(self) -> None:
        """Ends `lose_replies`."""
        self._losing = None

    def _end(self, how: Callable[[_Link], None]) -> int:
        links = list(self._links)
        for link in links:
            how(link)
        return len(links)

    def _loses_reply_of(self, data: bytes) -> bool:
        if self._losing is None or self._losing not in data:
            return False
        self._matched += 1
        return self._matched % self._lose_each == 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.close()
            return
        try:
            far_reader, far_writer = await _connect(self.target)
        except OSError:
            writer.close()
            return
        link = _Link((writer, far_writer), dict(self._gates))
        self._links.add(link)
        forward, back = (
            asyncio.create_task(self._forward(link, way, source, sink))
            for way, source, sink in ((Way.REQUESTS, reader, far_writer), (Way.REPLIES, far_reader, writer))
        )
        link.tasks = (forward, back)
        back.add_done_callback(lambda _: self._links.discard(link) if forward.done() else None)
        forward.add_done_callback(lambda _: self._links.discard(link) if back.done() else None)

    async def _forward(self, link: _Link, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await link.gates[way].wait()
                if way is Way.REQUESTS and self._loses_reply_of(data):
                    link.mute = True
                if way is Way.REPLIES and link.mute:
                    self.lost_replies += 1
                    link.reset()
                    return
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # the other end went away: so does this one
        finally:
            sink.close()


class _Link:
    """One connection with its two ends."""

    def __init__(
        self, ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter], gates: dict[Way, asyncio.Event]
    ) -> None:
        self.gates = {way: _open_gate() if gate.is_set() else asyncio.Event() for way, gate in gates.items()}
        self.mute = False
        self.tasks: tuple[asyncio.Task[None], ...] = ()
        self._ends = ends

    def cut(self) -> None:
        for end in self._ends:
            end.close()

    def reset(self) -> None:
        for end in self._ends:
            raw = end.get_extra_info("socket")
            if raw is not None and raw.fileno() != -1 and raw.family != socket.AF_UNIX:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.startswith("/"):
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))
