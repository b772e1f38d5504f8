"""What a stream is besides a source of jobs: a session with epochs, receipts, requests to stop."""

from __future__ import annotations

import grpc
from jobwire.v1 import store_pb2

from tests.requests import CANCELLED, RUNNING, create, heartbeat, seconds
from tests.server.probe import Probe, Stub, next_jobs, next_message, serving, stream_request, streaming


async def test_a_job_without_a_receipt_goes_to_another_uncounted(stub: Stub) -> None:
    request = stream_request("q", receipt_timeout=seconds(0.5))
    deaf = stub.ClaimStream(request)
    await next_message(deaf)
    await stub.Create(create("a", "q"))
    [first] = await next_jobs(deaf)
    async with streaming(stub, "q") as call:
        [job] = await next_jobs(call)
        assert (job.job.attempt, job.job.losses, job.job.undelivered) == (2, 0, 1)
        assert first.lease_token != job.lease_token
    deaf.cancel()


async def test_a_heartbeat_is_the_receipt(stub: Stub) -> None:
    async with streaming(stub, "q", receipt_timeout=seconds(10), lease=60) as call:
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)
        [beat] = (await stub.Heartbeat(heartbeat(job))).results
        assert beat.lease_expire_time.seconds - job.lease_expire_time.seconds >= 49


async def test_a_later_epoch_ends_the_sessions_older_stream(stub: Stub) -> None:
    async with (
        streaming(stub, "q", session_id="s", epoch=1) as old,
        streaming(stub, "q", session_id="s", epoch=2) as new,
    ):
        assert await old.code() == grpc.StatusCode.ABORTED
        await stub.Create(create("a", "q"))
        assert [job.job.id for job in await next_jobs(new)] == ["a"]


async def test_an_older_epoch_is_refused_and_another_session_is_not(stub: Stub) -> None:
    async with streaming(stub, "q", session_id="s", epoch=2), streaming(stub, "q", session_id="t", epoch=1) as other:
        late = stub.ClaimStream(stream_request("q", session_id="s", epoch=1))
        assert await late.code() == grpc.StatusCode.ABORTED
        await stub.Create(create("a", "q"))
        await stub.Create(create("b", "q"))
        await next_jobs(other)


async def test_a_request_to_stop_is_pushed_and_repeated(stub: Stub) -> None:
    async with streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        [job] = await next_jobs(call)
        answer = await stub.Cancel(store_pb2.CancelRequest(id="a", reason="why", grace=seconds(20)))
        assert (answer.outcome, answer.job.status) == (store_pb2.CANCEL_OUTCOME_REQUESTED, RUNNING)
        message = await next_message(call)
        assert message.cancel.lease.token == job.lease_token
        assert message.cancel.cancel == answer.job.cancel
        [beat] = (await stub.Heartbeat(heartbeat(job))).results
        assert (beat.state, beat.cancel) == (store_pb2.LEASE_STATE_CANCEL_REQUESTED, answer.job.cancel)


async def test_a_request_through_another_replica_is_pushed(store: Probe, stub: Stub) -> None:
    async with serving(store.beside()) as other, streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        await next_jobs(call)
        await other.Cancel(store_pb2.CancelRequest(id="a"))
        assert (await next_message(call)).HasField("cancel")


async def test_when_the_grace_is_over_the_job_is_cancelled_by_itself(stub: Stub) -> None:
    async with streaming(stub, "q") as call:
        await stub.Create(create("a", "q"))
        await next_jobs(call)
        await stub.Cancel(store_pb2.CancelRequest(id="a", grace=seconds(0.2)))
        answer = await stub.Get(store_pb2.GetRequest(id="a", wait=seconds(60)))
        assert answer.job.status == CANCELLED
