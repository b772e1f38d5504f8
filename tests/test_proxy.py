"""The proxy that fault tests use does the harm that they count on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.proxy import Proxy, Way
from tests.wait import wait_until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@pytest.fixture
async def heard() -> list[bytes]:
    """What has arrived at the target."""
    return []


@pytest.fixture
async def proxy(heard: list[bytes]) -> AsyncIterator[Proxy]:
    """Before a target that echoes line by line."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                heard.append(line)
                writer.write(line)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with Proxy.before(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy
    server.close()


@pytest.fixture
async def connect(proxy: Proxy) -> AsyncIterator[Connect]:
    """Opens connections through the proxy."""
    opened: list[Streams] = []

    async def connect() -> Streams:
        host, port = proxy.address.split(":")
        opened.append(await asyncio.open_connection(host, int(port)))
        return opened[-1]

    yield connect
    for _, writer in opened:
        writer.close()


async def ask(streams: Streams, line: bytes = b"hello\n") -> bytes:
    streams[1].write(line)
    return await streams[0].readline()


async def test_it_forwards_and_counts(proxy: Proxy, connect: Connect) -> None:
    first, second = await connect(), await connect()
    assert [await ask(first), await ask(second)] == [b"hello\n"] * 2
    assert (proxy.connections, proxy.open_connections) == (2, 2)
    first[1].close()
    await wait_until(lambda: proxy.open_connections == 1)


async def test_a_frozen_way_holds_back_until_it_thaws(proxy: Proxy, connect: Connect, heard: list[bytes]) -> None:
    streams = await connect()
    await ask(streams)
    proxy.freeze(Way.REPLIES)
    answer = asyncio.create_task(ask(streams, b"second\n"))
    await wait_until(lambda: b"second\n" in heard)
    assert not answer.done()
    proxy.thaw()
    assert await answer == b"second\n"
    proxy.freeze(new_connections_flow=True)
    answer = asyncio.create_task(ask(streams, b"third\n"))
    assert await ask(await connect()) == b"hello\n"
    assert b"third\n" not in heard
    proxy.thaw()
    assert await answer == b"third\n"


async def test_a_cut_is_an_end_of_file(proxy: Proxy, connect: Connect) -> None:
    streams = await connect()
    await ask(streams)
    assert proxy.cut() == 1
    assert await streams[0].read() == b""


async def test_a_reset_is_an_error(proxy: Proxy, connect: Connect) -> None:
    streams = await connect()
    await ask(streams)
    assert proxy.reset() == 1
    with pytest.raises(ConnectionResetError):
        await streams[0].read()


async def test_a_lost_reply_is_one_to_what_arrived(proxy: Proxy, connect: Connect, heard: list[bytes]) -> None:
    proxy.lose_replies(b"write", each=2)
    streams = await connect()
    assert [await ask(streams, line) for line in (b"read\n", b"write 1\n")] == [b"read\n", b"write 1\n"]
    with pytest.raises(ConnectionResetError):
        await ask(streams, b"write 2\n")
    assert heard[-1] == b"write 2\n"
    assert proxy.lost_replies == 1
    proxy.keep_replies()
    assert await ask(await connect(), b"write 4\n") == b"write 4\n"


async def test_a_refusing_target_and_a_slow_one(proxy: Proxy, connect: Connect) -> None:
    proxy.refusing = True
    assert await (await connect())[0].read() == b""
    proxy.refusing, proxy.delay_seconds = False, 0.05
    began = time.monotonic()
    await ask(await connect())
    assert time.monotonic() - began >= 0.1
