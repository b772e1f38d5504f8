"""What was claimed and did not reach its client goes back at once, uncounted."""

from __future__ import annotations

import asyncio
import contextlib
import random

import grpc
import pytest
import structlog
from jobwire.v1 import job_pb2, store_pb2
from jobwire_server.dispatch.dispatch import Dispatch

from tests.requests import PENDING, claim, complete, create, seconds
from tests.server.probe import Probe, Stub, Views, serving, stream_request
from tests.wait import wait_until


class Client:
    """Takes a stream's messages; fails, or hangs, when it gets jobs."""

    def __init__(self, *, fails: bool = False) -> None:
        self.hanging = asyncio.Event()
        self._fails = fails

    async def write(self, message: store_pb2.ClaimStreamResponse) -> None:
        if message.HasField("jobs"):
            if self._fails:
                raise ConnectionError("gone")
            self.hanging.set()
            await asyncio.Event().wait()


async def cancel(stub: Stub, call: grpc.aio.Call) -> None:
    """Cancels a call, and returns when the server knows: another call on the same connection has overtaken nothing."""
    call.cancel()
    await stub.Exists(store_pb2.ExistsRequest(id="a"))


async def given_back(store: Probe, job_id: str) -> None:
    """Returns once the job is ready again and its attempt counts for nothing."""

    async def is_back() -> bool:
        job = (await store.get(store_pb2.GetRequest(id=job_id))).job
        if job.status != PENDING or job.attempt != 1:
            return False
        assert (job.failures, job.losses) == (0, 0)
        assert [attempt.outcome for attempt in job.attempts] == [job_pb2.ATTEMPT_OUTCOME_RELEASED]
        return True

    await wait_until(is_back)


async def test_a19_a_failed_write_gives_back(store: Probe, dispatch: Dispatch) -> None:
    await store.create(create("a", "q"))
    with pytest.raises(ConnectionError):
        await dispatch.claim_stream(stream_request("q"), Client(fails=True).write)
    await given_back(store, "a")


async def test_a_cancelled_write_gives_back_all_that_was_claimed(store: Probe, dispatch: Dispatch) -> None:
    for number in range(3):
        await store.create(create(f"{number}", "q", payload=bytes(1_900_000)))
    client = Client()
    stream = asyncio.create_task(dispatch.claim_stream(stream_request("q", max_in_flight=3), client.write))
    await client.hanging.wait()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    # The third was not claimed: it would not have fitted the message.
    await given_back(store, "0")
    await given_back(store, "1")


async def test_a_stream_cancelled_while_it_claims_gives_back(store: Probe, dispatch: Dispatch) -> None:
    await store.create(create("a", "q"))
    store.gate.clear()
    stream = asyncio.create_task(dispatch.claim_stream(stream_request("q"), Client().write))
    await wait_until(lambda: store.claims == 1)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    store.gate.set()
    await given_back(store, "a")


async def test_a_bug_in_a_claim_that_nobody_waits_for_any_more_is_logged(store: Probe, dispatch: Dispatch) -> None:
    store.gate.clear()
    call = asyncio.create_task(dispatch.claim(claim("q")))
    await wait_until(lambda: store.claims == 1)
    with structlog.testing.capture_logs() as logs:
        call.cancel()
        await asyncio.wait([call])
        bug = RuntimeError("a bug")
        store.after_gate = bug
        store.gate.set()
        await wait_until(lambda: bool(logs))
    assert [(entry["event"], entry["exc_info"]) for entry in logs] == [("bug", bug)]


async def test_a_call_cancelled_while_it_claims_gives_back(store: Probe, stub: Stub) -> None:
    await stub.Create(create("a", "q"))
    store.gate.clear()
    call = stub.Claim(claim("q"))
    await wait_until(lambda: store.claims == 1)
    await cancel(stub, call)
    store.gate.set()
    await given_back(store, "a")


async def test_a_waiting_call_cancelled_while_it_claims_gives_back(store: Probe, stub: Stub, views: Views) -> None:
    call = stub.Claim(claim("q", wait=seconds(60)))
    await views.idle(1)
    store.gate.clear()
    await store.beside().create(create("a", "q"))  # through another replica: no hand-off
    await wait_until(lambda: store.claims == 3)
    await cancel(stub, call)
    store.gate.set()
    await given_back(store, "a")


async def test_a_call_cancelled_while_it_answers_gives_back(store: Probe, dispatch: Dispatch) -> None:
    await store.create(create("a", "q"))

    answering = asyncio.Event()

    async def handle() -> None:
        await dispatch.claim(claim("q"))
        answering.set()
        # As gRPC does while it sends the answer.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    handler = asyncio.create_task(handle())
    await answering.wait()
    handler.cancel()
    await handler
    await given_back(store, "a")


async def test_an_idle_stream_gets_what_another_gave_back(store: Probe, dispatch: Dispatch) -> None:
    await store.create(create("a", "q"))
    received: list[store_pb2.ClaimedJob] = []

    async def take(message: store_pb2.ClaimStreamResponse) -> None:
        received.extend(message.jobs.jobs)

    client = Client()
    broken = asyncio.create_task(dispatch.claim_stream(stream_request("q"), client.write))
    await client.hanging.wait()
    healthy = asyncio.create_task(dispatch.claim_stream(stream_request("q"), take))
    broken.cancel()
    await wait_until(lambda: len(received) == 1)
    healthy.cancel()
    await asyncio.wait([broken, healthy])


@pytest.mark.parametrize("seed", range(3))
async def test_clients_that_vanish_at_random_lose_nothing(seed: int) -> None:
    chance = random.Random(seed)
    store = Probe(partitions=2)
    done: set[str] = set()
    async with serving(store) as stub:

        async def come_and_go() -> None:
            call = stub.ClaimStream(stream_request("q", max_in_flight=chance.randint(1, 4), lease=1.0))
            try:
                async with asyncio.timeout(chance.random() * 0.03):
                    while isinstance(message := await call.read(), store_pb2.ClaimStreamResponse):
                        for job in message.jobs.jobs:
                            done.add(job.job.id)
                            await asyncio.shield(stub.Complete(complete(job)))
            except TimeoutError:
                call.cancel()

        async def submit() -> None:
            for number in range(100):
                await stub.Create(create(f"{number}", "q"))

        creating = asyncio.create_task(submit())
        while not creating.done():
            await asyncio.gather(*(come_and_go() for _ in range(3)))
        await creating

        # What was sent and not read comes back when its lease runs out, everything else at once.
        async def all_done() -> bool:
            answer = await stub.Claim(claim("q", max_jobs=100, lease=30))
            for job in answer.jobs:
                done.add(job.job.id)
                await stub.Complete(complete(job))
            jobs = [(await store.get(store_pb2.GetRequest(id=f"{number}"))).job for number in range(100)]
            return all(job.status == job_pb2.JOB_STATUS_SUCCEEDED for job in jobs)

        await wait_until(all_done, 60.0)
        assert done == {f"{number}" for number in range(100)}
