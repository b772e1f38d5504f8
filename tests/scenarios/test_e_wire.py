"""What arrives at a server's port that no client of ours would send, and connections that are only half there."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from jobwire.v1 import store_pb2

from tests.requests import create
from tests.scenarios.scale import scaled
from tests.scenarios.servers import jobs, server_process
from tests.server.probe import Reading, connected, next_message, stream_request
from tests.wait import wait_until

__all__ = ["jobs"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    """An HTTP/2 frame."""
    return len(data).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + data


def header(name: bytes, value: bytes) -> bytes:
    """A header in HPACK, literal and never indexed."""
    return b"\x10" + integer(len(name)) + name + integer(len(value)) + value


def integer(value: int) -> bytes:
    """As HPACK has it, with a prefix of seven bits."""
    if value < 127:
        return bytes([value])
    out, value = b"\x7f", value - 127
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def call(path: bytes, body: bytes, content_type: bytes = b"application/grpc", *more: tuple[bytes, bytes]) -> bytes:
    """A call on a new connection, from the preface to its end."""
    headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
    block = b"".join(header(*one) for one in [*headers, (b"content-type", content_type), (b"te", b"trailers"), *more])
    parts = [block[start : start + 16_000] for start in range(0, len(block), 16_000)]
    out = PREFACE + frame(4, 0, 0, b"")
    for number, part in enumerate(parts):
        out += frame(9 if number else 1, 4 * (number == len(parts) - 1), 1, part)
    for start in range(0, max(len(body), 1), 16_000):
        out += frame(0, start + 16_000 >= len(body), 1, body[start : start + 16_000])
    return out


def message(data: bytes, *, length: int | None = None, compressed: int = 0) -> bytes:
    """A message of a call, with its prefix."""
    return struct.pack(">BI", compressed, len(data) if length is None else length) + data


def wire_garbage(chance: random.Random) -> bytes:
    """What no client sends: bytes, frames, and messages that are not what they say."""
    path = chance.choice([b"/jobwire.v1.Store/Create", b"/jobwire.v1.Store/ClaimStream", b"/jobwire.v1.Admin/GetQueue"])
    data = create("a", "q").SerializeToString()
    noise = chance.randbytes(chance.randint(0, 300))
    match chance.randrange(9):
        case 0:
            return noise
        case 1:
            return PREFACE + noise
        case 2:
            return PREFACE + frame(4, 0, 0, b"") + frame(chance.randrange(16), chance.randrange(256), 1, noise)
        case 3:
            whole = call(path, message(data))
            return whole[: chance.randrange(len(whole))]
        case 4:
            return call(path, message(data, length=chance.choice([0, 1, len(data) + 9, 1 << 31, (1 << 32) - 1])))
        case 5:
            return call(path, message(noise, compressed=1), b"application/grpc", (b"grpc-encoding", b"gzip"))
        case 6:
            return call(
                path, message(data), chance.choice([b"text/html", b"application/json", b"", noise[:20].hex().encode()])
            )
        case 7:
            return call(path, message(data), b"application/grpc", (b"x-many", b"v" * chance.choice([9_000, 100_000])))
        case _:
            return call(
                path, message(data), b"application/grpc", (b"grpc-timeout", chance.choice([b"99999999H", b"-1S", b"x"]))
            )


def deep(levels: int) -> bytes:
    """A group in a group in a group, that many deep."""
    return b"\x0b" * levels + b"\x0c" * levels


def request_garbage(chance: random.Random) -> bytes:
    """What arrives whole as a message, and is not the method's, or is, and says what nobody understands."""
    whole = create("a", "q", priority=3, labels={"a": "b"}).SerializeToString()
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randint(1, 300))
        case 1:
            return whole[: chance.randrange(1, len(whole))]
        case 2:
            spoilt = bytearray(whole)
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            return bytes(spoilt)
        case 3:
            return deep(chance.choice([50, 10_000]))
        case 4:  # a field that nobody knows
            return b"\xfa\x7f\x05hello" + chance.randbytes(chance.randint(0, 3))
        case _:  # an enum value that nobody knows, in every varint field
            return b"".join(bytes([number << 3]) + b"\xff\xff\xff\xff\x07" for number in range(1, 16))


async def test_e22_garbage_on_the_wire_hurts_nobody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are not what they should be took servers down, or were answered as their own fault (grpc #16102,
    #37160, protobuf #4970). What gRPC answers in its own words, before our code sees anything, is counted apart.
    """
    chance = random.Random(22)
    ends: Counter[str] = Counter()
    async with server_process("memory://", tmp_path / "log") as server, connected(server.address) as stub:
        host, _, port = server.address.rpartition(":")
        bystander = stub.ClaimStream(stream_request("mine", max_in_flight=1_000, keepalive=1.0))
        assert (await next_message(bystander)).HasField("opened")
        reading = Reading(bystander)

        async def throw(data: bytes, stay: float) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            heard = b""
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(data)
                async with asyncio.timeout(stay):
                    while more := await reader.read(65_536):
                        heard += more
                        if b"grpc-status" in heard:
                            break
            writer.close()
            return heard

        async def ask(channel: Any, data: bytes) -> None:
            method = chance.choice(["Create", "Get", "BatchSettle", "Heartbeat", "Update", "Cancel"])
            try:
                await channel.unary_unary(f"/jobwire.v1.Store/{method}")(data, timeout=20)
                ends["OK"] += 1
            except grpc.aio.AioRpcError as error:
                ours = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
                ends[error.code().name if ours else f"gRPC's {error.code().name}"] += 1

        async def attack(count: int) -> None:
            async with grpc.aio.insecure_channel(server.address) as channel:
                for number in range(count):
                    await throw(wire_garbage(chance), chance.random() * 0.03)
                    for _ in range(2):
                        await ask(channel, request_garbage(chance))
                    if number % 20 == 0:
                        await stub.Create(create(queue="mine"))

        # That these frames are understood where they are as they should be.
        for name, timeout in (("plain", b"10S"), ("long", b"99999999H")):
            body = message(create(name, "raw").SerializeToString())
            whole = call(b"/jobwire.v1.Store/Create", body, b"application/grpc", (b"grpc-timeout", timeout))
            assert b"grpc-status" in await throw(whole, 20)
            assert (await stub.Exists(store_pb2.ExistsRequest(id=name))).exists
        await asyncio.gather(*(attack(10) for _ in range(20)))
        warm = server.resident_bytes()
        await asyncio.gather(*(attack(scaled(50)) for _ in range(20)))
        grown = server.resident_bytes() - warm
        with capsys.disabled():
            print(
                f"\nE22: {20 * (10 + scaled(50))} connections of garbage, {ends.total()} requests: {dict(ends)}, "
                f"{grown / 1e6:.1f} MB more memory"
            )
        # Alive, and who had a stream has kept it and got every job.
        expected = 20 * (1 + -(-scaled(50) // 20))
        await wait_until(lambda: len(reading.jobs) == expected)
        await reading.stop()
        assert server.process.returncode is None
        assert "Traceback" not in server.log()
        assert '"bug"' not in server.log()
    assert set(ends) <= {
        "OK",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "UNIMPLEMENTED",
        "ALREADY_EXISTS",
    }
    assert grown < 30_000_000


async def test_e22_a_compressed_bomb_is_refused_unopened(tmp_path: Path) -> None:
    """The same with a message of 300 KB that would be 300 MB: refused at the limit of a message."""
    async with server_process("memory://", tmp_path / "log") as server:
        before = server.resident_bytes()
        async with grpc.aio.insecure_channel(
            server.address, compression=grpc.Compression.Gzip, options=[("grpc.max_send_message_length", -1)]
        ) as channel:
            raw: Any = channel
            for _ in range(5):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await raw.unary_unary("/jobwire.v1.Store/Create")(bytes(60_000_000))
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.resident_bytes() - before < 100_000_000
        async with connected(server.address) as stub:
            assert (await stub.Create(create("a", "q"))).created
