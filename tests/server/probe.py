"""A memory store that tests can look into and put out of order, and short ways to call a server around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
from jobwire.v1 import job_pb2, store_pb2, store_pb2_grpc
from jobwire_server.app import running
from jobwire_server.dispatch.queue_view import QueueView
from jobwire_server.settings import Settings
from jobwire_server.store.errors import engine_unavailable
from jobwire_server.store.memory import MemoryStore
from jobwire_server.store.memory.step import Step
from jobwire_server.store.prepare import Creation
from jobwire_server.store.types import Claimed, Held, Notice, NoticeKind, Outcome, Wish

from tests.requests import seconds
from tests.wait import wait_until

if TYPE_CHECKING:
    # Neither exists at run time.
    Stub = store_pb2_grpc.StoreAsyncStub
    Stream = grpc.aio.UnaryStreamCall[store_pb2.ClaimStreamRequest, store_pb2.ClaimStreamResponse]
else:
    Stub = Stream = Any


class Probe(MemoryStore):
    """By the wall clock, swept by its server alone."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        super().__init__(partitions=partitions, sweep_interval_ms=0, **options)
        self.claims = 0
        """How many claims were made through this replica."""
        self.handed = 0
        """How many of these were part of a hand-off."""
        self.looks = 0
        """How often this replica looked at queues that somebody waits for."""
        self.watched = 0
        """How often this replica read a job for somebody who waits for its change."""
        self.checks = 0
        """How often this replica asked what became of leases."""
        self.deaf = False
        """Notices are lost."""
        self.failure: Callable[[], BaseException] | None = None
        """What every verb raises, if anything."""
        self.failures = 0
        """How often it did."""
        self.gate = asyncio.Event()
        """A claim's answer waits for it."""
        self.gate.set()
        self.after_gate: BaseException | None = None
        """What a claim raises in place of its answer, if anything."""

    def beside(self) -> Probe:
        """Another replica over the same jobs."""
        other = Probe(self.partitions)
        other._state = self._state
        return other

    def go_down(self) -> None:
        """Until `failure` is None again."""
        self.failure = lambda: engine_unavailable("the engine is down")

    async def ping(self) -> None:
        self._step(0)

    async def notices(self) -> AsyncGenerator[Notice, None]:
        async for notice in super().notices():
            if not self.deaf or notice.kind is NoticeKind.RESUMED:
                yield notice

    async def _claim(self, partition: int, wish: Wish) -> Claimed:
        self.claims += 1
        claimed = await super()._claim(partition, wish)
        await self.gate.wait()
        if self.after_gate is not None:
            raise self.after_gate
        return claimed

    async def _hand_off(
        self, partition: int, creations: Sequence[Creation], wish: Wish
    ) -> tuple[list[Outcome], Claimed]:
        self.claims += 1
        self.handed += 1
        answer = await super()._hand_off(partition, creations, wish)
        await self.gate.wait()
        return answer

    async def _get(
        self, partition: int, namespace: str, ids: Sequence[str], full: bool, watch: bool
    ) -> list[job_pb2.Job | None]:
        self.watched += watch
        return await super()._get(partition, namespace, ids, full, watch)

    async def _look(self, partition: int, queues: Sequence[tuple[str, str]]) -> list[bool]:
        self.looks += 1
        return await super()._look(partition, queues)

    async def _held(self, partition: int, leases: Sequence[store_pb2.LeaseRef]) -> list[Held]:
        states = await super()._held(partition, leases)
        self.checks += 1
        return states

    def _step(self, partition: int) -> Step:
        if self.failure is not None:
            self.failures += 1
            raise self.failure()
        return super()._step(partition)


class Views(list[QueueView]):
    """The queues that somebody listens to, of every replica of a test."""

    async def idle(self, count: int, queue: str = "q") -> None:
        """Returns once so many streams and calls sleep with room for a job: each has looked everywhere in vain."""
        await wait_until(lambda: sum(len(view.idle) for view in self if view.name[1] == queue) == count)


@asynccontextmanager
async def serving(store: MemoryStore, **settings: Any) -> AsyncIterator[Stub]:
    """A server around a store, and a stub that reaches it."""
    async with running(store, settings=Settings(**settings)) as server, connected(server.address) as stub:
        yield stub


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Stub]:
    """A stub on a channel of its own."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Stub = store_pb2_grpc.StoreStub(channel)
        yield stub


def stream_request(
    *queues: str, max_in_flight: int = 1, lease: float = 30.0, keepalive: float = 20.0, **fields: Any
) -> store_pb2.ClaimStreamRequest:
    """A ClaimStreamRequest; spans in seconds."""
    return store_pb2.ClaimStreamRequest(
        queues=[store_pb2.QueueRef(queue=queue) for queue in queues],
        max_in_flight=max_in_flight,
        lease_duration=seconds(lease),
        keepalive_interval=seconds(keepalive),
        **fields,
    )


@asynccontextmanager
async def streaming(stub: Stub, *queues: str, **fields: Any) -> AsyncIterator[Stream]:
    """An opened claim stream, cancelled at the end. gRPC does not cancel a call that is merely dropped."""
    call = stub.ClaimStream(stream_request(*queues, **fields))
    try:
        assert (await next_message(call)).HasField("opened")
        yield call
    finally:
        call.cancel()


async def next_message(call: Stream, within: float = 20.0) -> store_pb2.ClaimStreamResponse:
    """The next message of a stream that goes on."""
    async with asyncio.timeout(within):
        message = await call.read()
    assert isinstance(message, store_pb2.ClaimStreamResponse), "the stream has ended"
    return message


async def next_jobs(call: Stream, within: float = 20.0) -> list[store_pb2.ClaimedJob]:
    """The jobs of the next message, which must be jobs."""
    message = await next_message(call, within)
    assert message.HasField("jobs"), message
    return list(message.jobs.jobs)


class Reading:
    """Reads a stream all the time, so that a test can say that nothing came."""

    def __init__(self, call: Stream) -> None:
        self.jobs: list[store_pb2.ClaimedJob] = []
        self.kinds: list[str] = []
        self._call = call
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        # Not `async for`: gRPC forbids both ways of reading on one call.
        while isinstance(message := await self._call.read(), store_pb2.ClaimStreamResponse):
            self.kinds.append(message.WhichOneof("event") or "")
            self.jobs.extend(message.jobs.jobs)

    async def stop(self) -> None:
        """Ends reading; raises what the stream ended with, unless that was our cancel."""
        self._call.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            error = self._task.exception()
            assert error is None or isinstance(error, asyncio.CancelledError), error
